"""mmengine's ``FlexibleRunner`` and sharded training, made safe."""

from .flexible_runner import FlexibleRunner
from .fsdp_strategy import FSDPStrategy

__all__ = ['FSDPStrategy', 'FlexibleRunner']
