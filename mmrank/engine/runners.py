"""Properties of the runner at hand: models, weights and checkpoints."""

from mmengine.hooks import EMAHook, SyncBuffersHook
from mmengine.model import is_model_wrapper
from mmengine.runner import FlexibleRunner
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.errors import UserError

#: What is said of mmengine's other runner.
_FLEXIBLE = (
    "runner_type='FlexibleRunner': its strategies write checkpoints that a kill leaves torn, and "
    'hooks see them too late for an exact resume',
    "leave out runner_type and strategy; mmengine's Runner trains on several GPUs, too",
)


def refuse_flexible_runner(kind: type | str | None) -> None:
    """Refuse mmengine's ``FlexibleRunner``, as a class or by its name, by a UserError."""
    is_it = isinstance(kind, type) and issubclass(kind, FlexibleRunner)
    if is_it or kind in ('FlexibleRunner', 'mmengine.FlexibleRunner'):
        raise UserError(*_FLEXIBLE)


def unwrap_model(model: nn.Module) -> nn.Module:
    """Remove the wrappers for distributed training; an averaged model is none."""
    while is_model_wrapper(model):
        model = model.module
    return model


def modules_with(runner, attribute: str) -> dict[str, nn.Module]:
    """Modules of the model whose ``attribute`` is there and true, by their names."""
    modules = unwrap_model(runner.model).named_modules()
    return {name: module for name, module in modules if getattr(module, attribute, False)}


def has_own_statistics(runner) -> bool:
    """Whether batch norm's statistics differ by process; the first one's are saved."""
    has_average = any(isinstance(hook, EMAHook) for hook in runner.hooks)
    is_synchronised = any(isinstance(hook, SyncBuffersHook) for hook in runner.hooks)
    is_synchronised = is_synchronised or getattr(runner.model, 'broadcast_buffers', False)
    if is_synchronised and not has_average:  # which it does not reach
        return False
    fixed = set()
    for module in runner.model.modules():
        if getattr(module, 'norm_eval', False):  # as backbones of mmdet have
            fixed.update(module.modules())
    for module in runner.model.modules():
        is_local = isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm)
        if is_local and module.track_running_stats and module not in fixed:
            return True
    return False
