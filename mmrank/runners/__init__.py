"""From a config to a runner or a model.

``trained_model`` builds the model of a config with the weights of a checkpoint.
"""

from mmrank.imports import lazy_package

__all__, __getattr__, __dir__ = lazy_package(__name__)
