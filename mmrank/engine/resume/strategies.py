"""What the runner or strategy at hand does with weights and checkpoints."""

from mmengine.runner import FlexibleRunner

#: Strategies of ``FlexibleRunner`` with the whole model in each process, and
#: one file as a checkpoint.
_WHOLE_MODEL = ('SingleDeviceStrategy', 'DDPStrategy')


def shards_weights(runner) -> bool:
    """Whether no process has all weights: DeepSpeed, FSDP, ColossalAI.

    Args:
        runner: mmengine's ``Runner`` or ``FlexibleRunner``.

    Returns:
        ``False`` for ``Runner``.
    """
    return (
        isinstance(runner, FlexibleRunner)
        and type(runner.strategy).__name__ not in _WHOLE_MODEL
    )
