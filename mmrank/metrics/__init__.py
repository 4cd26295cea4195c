"""Metrics of rankings and embeddings."""
