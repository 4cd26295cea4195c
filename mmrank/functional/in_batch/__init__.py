"""In-batch losses of two-tower models."""
