"""Comparisons of trainings: plan, runs, statistics, report."""
