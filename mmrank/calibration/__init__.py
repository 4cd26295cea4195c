"""Probabilities from scores: maps, their files, and calibration errors. Torch alone."""

from mmrank.calibration.calibration_file import Calibration, affine_logit_map, read_calibration

__all__ = ['Calibration', 'affine_logit_map', 'read_calibration']
