"""Whether a resumed training still has to validate its last step.

mmengine saves the checkpoint of a step before it validates that step. A run that is killed in
between resumes after the validation that it skipped.
"""

from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

# Not 'val...': mmengine's log shows the runtime infos of such names.
VALIDATED_KEY = 'mmrank_validated_at'


def note_validation(runner) -> None:
    """Remember, in what checkpoints save, that this step was validated."""
    position = _position(runner)
    if position is not None:
        runner.message_hub.update_info(VALIDATED_KEY, position)


def missed_validation(runner) -> bool:
    """Tell whether the loop validates here and has not done it.

    Args:
        runner: A runner whose training was resumed.

    Returns:
        ``False`` as well for loops other than mmengine's two.
    """
    loop, position = runner.train_loop, _position(runner)
    if position is None or runner._val_loop is None:
        return False
    loop._decide_current_val_interval()
    end = loop.max_epochs if isinstance(loop, EpochBasedTrainLoop) else loop.max_iters
    due = position >= max(loop.val_begin, 1) and (
        position % loop.val_interval == 0 or position == end
    )
    done = runner.message_hub.get_info(VALIDATED_KEY, -1)
    return due and done != position


def _position(runner) -> int | None:
    """Epochs or iterations done, in the unit in which the loop validates."""
    loop = runner._train_loop
    if isinstance(loop, EpochBasedTrainLoop):
        return loop.epoch
    if isinstance(loop, IterBasedTrainLoop):
        return loop.iter
    return None
