"""Probabilities from scores: maps, their files, and calibration errors. Torch alone."""
