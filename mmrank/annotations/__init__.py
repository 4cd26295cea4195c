"""Annotation files: read, check, clean, merge, convert. Needs no torch."""
