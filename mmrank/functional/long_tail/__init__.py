"""Losses and weights from class counts."""
