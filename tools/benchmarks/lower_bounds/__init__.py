"""Rows of ``floors.py``: each loss and metric, its work and the lower bound of it."""
