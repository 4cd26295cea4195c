"""Backbones."""

from .deep_feature_mixup import DeepFeatureMixup
from .small_conv_net import SmallConvNet

__all__ = ['DeepFeatureMixup', 'SmallConvNet']
