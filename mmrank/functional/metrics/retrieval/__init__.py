"""Retrieval metrics of one gallery."""
