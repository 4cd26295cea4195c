"""Makes the backbone of FastestDet known to configs of mmdet: custom_imports names this module."""

from mmdet.registry import MODELS

from detectors.fastestdet import FastestDetBackbone

MODELS.register_module(module=FastestDetBackbone)
