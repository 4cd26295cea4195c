"""Models of images and texts."""

from .byte_tokenizer import ByteTokenizer
from .huggingface_text_encoder import HuggingFaceTextEncoder
from .image_text_dual_encoder import ImageTextDualEncoder
from .text_transformer import TextTransformer
from .zero_shot_prompts import ZeroShotPrompts

__all__ = [
    'ByteTokenizer',
    'HuggingFaceTextEncoder',
    'ImageTextDualEncoder',
    'TextTransformer',
    'ZeroShotPrompts',
]
