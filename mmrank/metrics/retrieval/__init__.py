"""Retrieval metrics of embeddings."""
