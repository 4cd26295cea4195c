"""Losses of pytorch-metric-learning."""
