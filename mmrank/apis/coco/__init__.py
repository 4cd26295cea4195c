"""Benchmark of detectors on COCO-style data."""
