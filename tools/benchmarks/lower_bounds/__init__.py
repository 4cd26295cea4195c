"""Rows of ``floors.py``: each loss and metric, its work and its floor."""
