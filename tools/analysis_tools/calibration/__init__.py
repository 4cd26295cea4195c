"""Fitting maps from score to probability, and judging them."""
