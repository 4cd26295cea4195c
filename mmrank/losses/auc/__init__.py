"""Losses of the area under the ROC curve, whole and partial."""
