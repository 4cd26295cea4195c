"""What the command-line tools are made of, and released models by name."""

from .released_model import load_model, released_models

__all__ = ['load_model', 'released_models']
