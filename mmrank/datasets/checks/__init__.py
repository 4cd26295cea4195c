"""Checks of the data sets of a config."""
