"""Detectors on the stable AP loss."""
