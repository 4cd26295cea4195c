"""Losses of retrieval metrics other than average precision."""
