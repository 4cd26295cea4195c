"""The runner at hand and its model."""

from mmengine.model import is_model_wrapper
from mmengine.runner import FlexibleRunner
from torch import nn

from mmrank.errors import UserError


def refuse_flexible_runner(kind: type | str | None) -> None:
    """Refuse mmengine's ``FlexibleRunner``, as a class or by its name, by a UserError."""
    is_it = isinstance(kind, type) and issubclass(kind, FlexibleRunner)
    if is_it or kind in ('FlexibleRunner', 'mmengine.FlexibleRunner'):
        raise UserError(
            "runner_type='FlexibleRunner': its strategies write checkpoints that a kill leaves "
            'torn, and hooks see them too late for an exact resume',
            "leave out runner_type and strategy; mmengine's Runner trains on several GPUs, too",
        )


def unwrap_model(model: nn.Module) -> nn.Module:
    """Remove the wrappers for distributed training; an averaged model is none."""
    while is_model_wrapper(model):
        model = model.module
    return model


def modules_with(runner, attribute: str) -> dict[str, nn.Module]:
    """Modules of the model whose ``attribute`` is there and true, by their names."""
    modules = unwrap_model(runner.model).named_modules()
    return {name: module for name, module in modules if getattr(module, attribute, False)}
