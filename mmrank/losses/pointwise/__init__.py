"""Losses of single scores: by class counts, and by the quality of boxes."""
