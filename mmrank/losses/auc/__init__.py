"""Losses of areas: under the ROC curve, whole and partial, and under precision and recall."""
