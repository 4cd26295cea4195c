"""Sums of a surrogate over all pairs of positives and negatives."""
