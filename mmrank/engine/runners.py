"""Properties of the runner or strategy at hand: models, weights and checkpoints."""

from mmengine.hooks import EMAHook, SyncBuffersHook
from mmengine.model import is_model_wrapper
from mmengine.runner import FlexibleRunner
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.errors import UserError

#: Strategies of ``FlexibleRunner`` with the whole model in each process, and one file as a
#: checkpoint.
_WHOLE_MODEL = ('SingleDeviceStrategy', 'DDPStrategy')
#: Strategies that give hooks the checkpoint that they save.
_CALL_HOOKS = (*_WHOLE_MODEL, 'FSDPStrategy')
#: Strategies of mmengine from which no exact resume is possible, and why.
_REFUSED = {
    'FSDPStrategy': (
        'writes shards that only the same number of processes can load, and it needs a GPU'
    ),
    'DeepSpeedStrategy': (
        'does not show its checkpoints to hooks, so that random states and averages of the weights '
        'are lost by a resume, and it reads them as pickles, which can run code'
    ),
    'ColossalAIStrategy': (
        'does not show its checkpoints to hooks, so that random states and averages of the weights '
        'are lost by a resume'
    ),
}


def unwrap_model(model: nn.Module) -> nn.Module:
    """Remove the wrappers for distributed training; an averaged model is none."""
    while is_model_wrapper(model):
        model = model.module
    return model


def modules_with(runner, attribute: str) -> dict[str, nn.Module]:
    """Modules of the model whose ``attribute`` is there and true, by their names."""
    modules = unwrap_model(runner.model).named_modules()
    return {name: module for name, module in modules if getattr(module, attribute, False)}


def strategy_class(strategy) -> tuple[str, str]:
    """Package, if named, and name of the class of a strategy: a config, an object, or None."""
    kind = strategy.get('type', '') if isinstance(strategy, dict) else type(strategy)
    if isinstance(kind, type):
        return kind.__module__.partition('.')[0], kind.__name__
    scope, _, name = str(kind).rpartition('.')
    return scope, name


def refuse_strategy(strategy) -> None:
    """Refuse, by a UserError, a strategy whose checkpoints cannot be resumed from exactly."""
    scope, name = strategy_class(strategy)
    if name in _REFUSED and scope in ('', 'mmengine'):
        raise UserError(
            f"strategy.type: mmengine's {name} {_REFUSED[name]}. Fix: "
            "strategy=dict(type='mmrank.FSDPStrategy'), whose checkpoints have all of it"
        )


def shards_weights(runner) -> bool:
    """Whether no process has all weights: DeepSpeed, FSDP, ColossalAI."""
    return _has_other_strategy(runner, _WHOLE_MODEL)


def has_global_state(runner) -> bool:
    """Whether states have the keys and shapes of one process; ``mmrank.FSDPStrategy``'s do."""
    return not shards_weights(runner) or getattr(runner.strategy, 'has_global_state', False)


def hides_checkpoints(runner) -> bool:
    """Whether hooks cannot add to the checkpoints: DeepSpeed, ColossalAI."""
    return _has_other_strategy(runner, _CALL_HOOKS)


def writes_itself(runner) -> bool:
    """Whether it is mmengine's ``FlexibleRunner``: torn checkpoints, hooks called after a load."""
    return isinstance(runner, FlexibleRunner) and not getattr(
        runner, 'saves_whole_checkpoints', False
    )


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


def _has_other_strategy(runner, names: tuple[str, ...]) -> bool:
    return isinstance(runner, FlexibleRunner) and type(runner.strategy).__name__ not in names
