"""The way through the wrappers around a model."""

from mmengine.model import is_model_wrapper
from torch import nn


def unwrap_model(model: nn.Module) -> nn.Module:
    """Remove the wrappers for distributed training, however many there are.

    An averaged model is no wrapper: its weights are others.

    Args:
        model: Of a Runner: the model itself or, in distributed training, within
            ``MMDistributedDataParallel`` or another registered wrapper.

    Returns:
        The model, whose parameters have the names of a checkpoint.
    """
    while is_model_wrapper(model):
        model = model.module
    return model
