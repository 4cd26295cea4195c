"""Ends a training between two iterations when a signal asked for it."""

import os
from typing import NoReturn

import torch
from mmengine.dist import (
    all_reduce,
    barrier,
    broadcast_object_list,
    get_world_size,
    is_main_process,
)
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import IterBasedTrainLoop

from mmrank import interruption
from mmrank.engine.resume.checkpoint import POINTER_NAME
from mmrank.files import write_atomically
from mmrank.registry import HOOKS

from .rng_state_hook import RNGStateHook


@HOOKS.register_module()
class InterruptHook(Hook):
    """Reads after each iteration whether SIGINT or SIGTERM has arrived.

    ``mmrank train`` adds it. The training then ends in order, on all processes after the same
    iteration; in a validation after an iteration of it or, to save a checkpoint, after the whole of
    it, as the weights may be averaged ones until then.

    Args:
        save: Whether to save a checkpoint first, ``iter_<n>.pth`` or, at the end of an epoch,
            ``epoch_<n>.pth``. An epoch-based loop resumes from the start of the epoch.
    """

    priority = 'LOWEST'  # After the CheckpointHook, whose own checkpoint may be enough

    def __init__(self, save: bool = False) -> None:
        self.save = save
        self._saved_at: tuple[int, int] | None = None

    def before_train(self, runner) -> None:
        interruption.defer_signals(True)

    def after_train(self, runner) -> None:
        interruption.defer_signals(False)

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        if 'optimizer' in checkpoint:
            meta = checkpoint['meta']
            self._saved_at = meta['epoch'], meta['iter']

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        loop = runner.train_loop
        ends_epoch = not _is_iter_based(runner) and self.end_of_epoch(loop.dataloader, batch_idx)
        if ends_epoch or not _is_asked():
            return
        for hook in runner.hooks:
            if self.save and isinstance(hook, RNGStateHook):
                hook.note(runner, gather=True)
        step = runner.iter + 1
        self._end(runner, runner.epoch, step, f'iter_{step}.pth')

    def after_train_epoch(self, runner) -> None:
        if not _is_iter_based(runner) and _is_asked():
            step = runner.epoch + 1
            self._end(runner, step, runner.iter, f'epoch_{step}.pth')

    def after_val_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        if not self.save and interruption.received_signal() is not None:
            raise interruption.Interrupted

    def after_val_epoch(self, runner, metrics=None) -> None:
        if interruption.is_deferred() and _is_asked():
            by_iter = _is_iter_based(runner)
            name = f'iter_{runner.iter}.pth' if by_iter else f'epoch_{runner.epoch}.pth'
            self._end(runner, runner.epoch, runner.iter, name)

    def _end(self, runner, epoch: int, step: int, name: str) -> NoReturn:
        """End the training, with a checkpoint of this name if one is wanted and not there."""
        # The first process alone knows what was saved; all may have to write a part of it.
        is_due = [self.save and self._saved_at != (epoch, step)]
        broadcast_object_list(is_due)
        if is_due[0]:
            hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
            folder = runner.work_dir if hook is None else hook.out_dir
            meta = dict(epoch=epoch, iter=step)
            place = getattr(hook, 'backend_args', None)
            runner.save_checkpoint(folder, name, meta=meta, by_epoch=False, backend_args=place)
            if is_main_process():
                path = os.path.join(folder, name)
                write_atomically(path.encode(), os.path.join(runner.work_dir, POINTER_NAME))
                runner.logger.info(f'Interrupted: saved {path}.')
        # A launcher ends all processes as soon as one has ended.
        barrier()
        raise interruption.Interrupted


def _is_iter_based(runner) -> bool:
    return isinstance(runner.train_loop, IterBasedTrainLoop)


def _is_asked() -> bool:
    """Whether a signal has arrived, in any process."""
    number = interruption.received_signal() or 0
    if get_world_size() > 1:
        flag = torch.tensor(number)
        all_reduce(flag, 'max')
        if number := int(flag):
            interruption.take_signal(number)
    return number != 0
