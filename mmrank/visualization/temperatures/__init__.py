"""Temperatures of samples: reading, statistics, figures, report."""
