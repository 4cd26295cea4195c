"""Models of images and texts."""

from .image_text_dual_encoder import ImageTextDualEncoder
from .text_encoders import HuggingFaceTextEncoder, TextTransformer

__all__ = ['HuggingFaceTextEncoder', 'ImageTextDualEncoder', 'TextTransformer']
