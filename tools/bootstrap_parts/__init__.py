"""Parts of ``tools/bootstrap.py``: standard library only, Python 3.8+."""
