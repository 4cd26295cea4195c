"""Probabilities from scores, and how far scores are from them."""
