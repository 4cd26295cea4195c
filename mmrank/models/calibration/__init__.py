"""Probabilities instead of scores, at test time."""

from .calibrated_model import CalibratedMixin, CalibratedModel, is_calibrated
from .calibration import Calibration, ClassMap, affine_logit_map, read_calibration, weights_digest

__all__ = [
    'CalibratedMixin',
    'CalibratedModel',
    'Calibration',
    'ClassMap',
    'affine_logit_map',
    'is_calibrated',
    'read_calibration',
    'weights_digest',
]
