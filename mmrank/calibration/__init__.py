"""Probabilities from scores: maps, their files, and calibration errors. Torch alone."""

from mmrank.calibration.calibration_file import Calibration, read_calibration

__all__ = ['Calibration', 'read_calibration']
