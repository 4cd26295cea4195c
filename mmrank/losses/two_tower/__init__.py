"""Losses of two-tower models."""
