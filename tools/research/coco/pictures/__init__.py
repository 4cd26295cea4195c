"""Figures of the detector benchmark."""
