"""Checks of annotation files and data sets."""
