"""Ranking losses: average precision, its rivals, areas under curves."""
