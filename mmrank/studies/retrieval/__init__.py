"""Report of retrieval models."""
