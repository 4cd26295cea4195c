"""What the runner or strategy at hand does with weights and checkpoints."""

from mmengine.optim import OptimWrapperDict
from mmengine.runner import FlexibleRunner

#: Strategies of ``FlexibleRunner`` with the whole model in each process, and
#: one file as a checkpoint.
_WHOLE_MODEL = ('SingleDeviceStrategy', 'DDPStrategy')
#: Strategies that give hooks the checkpoint that they save.
_CALL_HOOKS = (*_WHOLE_MODEL, 'FSDPStrategy')


def shards_weights(runner) -> bool:
    """Whether no process has all weights: DeepSpeed, FSDP, ColossalAI.

    Args:
        runner: mmengine's ``Runner`` or ``FlexibleRunner``.

    Returns:
        ``False`` for ``Runner``.
    """
    return _has_other_strategy(runner, _WHOLE_MODEL)


def hides_checkpoints(runner) -> bool:
    """Whether hooks cannot add to the checkpoints: DeepSpeed, ColossalAI.

    Args:
        runner: mmengine's ``Runner`` or ``FlexibleRunner``.

    Returns:
        ``False`` for ``Runner``.
    """
    return _has_other_strategy(runner, _CALL_HOOKS)


def _has_other_strategy(runner, names: tuple[str, ...]) -> bool:
    return (
        isinstance(runner, FlexibleRunner)
        and type(runner.strategy).__name__ not in names
    )


def accumulates_gradients(optim_wrapper) -> bool:
    """Whether an optimiser's step sums the gradients of several iterations.

    Args:
        optim_wrapper: mmengine's, or several in an ``OptimWrapperDict``.

    Returns:
        Whether any of them does.
    """
    wrappers = (
        list(optim_wrapper.values())
        if isinstance(optim_wrapper, OptimWrapperDict)
        else [optim_wrapper]
    )
    return any(getattr(w, '_accumulative_counts', 1) > 1 for w in wrappers)
