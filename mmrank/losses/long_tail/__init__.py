"""Pointwise losses from class counts."""
