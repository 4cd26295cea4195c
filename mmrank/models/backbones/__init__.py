"""Backbones."""

from .feature_mixup import DeepFeatureMixup
from .small_conv_net import SmallConvNet
from .timm_stages import TIMMStages

__all__ = ['DeepFeatureMixup', 'SmallConvNet', 'TIMMStages']
