"""Checkpoints that survive a kill at any instruction."""

import os
from pathlib import Path

from mmengine.dist import barrier, is_main_process
from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.hooks import CheckpointHook
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from mmrank.engine.resume.checkpoint import ATOMIC_BACKEND, POINTER_NAME, find_last_whole_checkpoint
from mmrank.engine.runners import refuse_flexible_runner
from mmrank.files import remove_temporary_files, write_atomically
from mmrank.registry import HOOKS

#: Runtime infos. Not 'val...': mmengine's log shows the runtime infos of such names.
OUTDATED_KEY = 'mmrank_outdated_ckpts'
VALIDATED_KEY = 'mmrank_validated_at'


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """mmengine's ``CheckpointHook``, safe against a kill at any moment.

    A drop-in for ``default_hooks.checkpoint`` with all options of the original. On a local file
    system:

    * Checkpoints, best ones too, and the pointer file ``last_checkpoint`` get their names
      only when their content is on the disk. Outdated checkpoints are removed after the new one is
      written, if need be by the resumed run.
    * Before ``resume=True`` reads the pointer, one to a damaged file is set to the last whole one.
    * A resumed run first does the validation of its last checkpoint if the kill came before its
      end. mmengine leaves it out, and with it the best checkpoint and a ``ReduceOnPlateau`` step.
    * The best checkpoint that a resumed one names counts, and is removed, in this training's folder
      only.

    With :class:`RNGStateHook` a resumed training ends with the same bits as one that was not
    interrupted. A checkpoint in the middle of a gradient accumulation lacks the gradients so far,
    as mmengine says when it resumes: let ``accumulative_counts`` divide the interval. Other storage
    backends, and the deprecated ``file_client_args``, keep the behaviour of the original.

    Args:
        *args: Of :class:`mmengine.hooks.CheckpointHook`.
        **kwargs: All arguments of :class:`mmengine.hooks.CheckpointHook`: ``interval``,
            ``by_epoch``, ``max_keep_ckpts``, ``save_best``, ...

    Raises:
        UserError: Before training, with mmengine's ``FlexibleRunner``.

    Examples:
        >>> default_hooks = dict(
        ...     checkpoint=dict(type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=3))
        >>> custom_hooks = [dict(type='mmrank.RNGStateHook')]
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._atomic = False

    def before_run(self, runner) -> None:
        """Make mmengine's auto-resume find a whole checkpoint."""
        refuse_flexible_runner(type(runner))
        if not runner._resume or runner._load_from is not None:
            return
        if is_main_process():
            self._point_to_whole(runner)
        barrier()

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        confine_best_checkpoints(checkpoint, runner)

    def before_train(self, runner) -> None:
        self._atomic = self._can_be_atomic(runner)
        if self._atomic:
            self.backend_args = {'backend': ATOMIC_BACKEND}
        super().before_train(runner)
        if self._atomic:
            self._remove_outdated()
        if self._atomic and is_main_process():
            for folder in (self.out_dir, runner.work_dir):
                remove_temporary_files(folder)
        if runner.iter > 0:
            self._take_up_last_checkpoint(runner)
            if _missed_validation(runner):
                runner.logger.info('The validation of the last checkpoint did not end: validating.')
                runner.val_loop.run()

    def after_val_epoch(self, runner, metrics) -> None:
        position = _position(runner)
        if position is not None:
            runner.message_hub.update_info(VALIDATED_KEY, position)
        super().after_val_epoch(runner, metrics)

    @staticmethod
    def _point_to_whole(runner) -> None:
        pointer = Path(runner.work_dir) / POINTER_NAME
        if not os.path.lexists(pointer):
            return
        whole = find_last_whole_checkpoint(runner.work_dir)
        if whole is None:
            text = 'the training starts from the beginning'
            runner.logger.warning(f'No complete checkpoint in {runner.work_dir}: {text}.')
            pointer.unlink()
        elif not pointer.is_file() or pointer.read_bytes() != whole.encode():
            runner.logger.warning(f'{pointer} now points to the last complete checkpoint, {whole}.')
            write_atomically(whole.encode(), pointer)

    def _can_be_atomic(self, runner) -> bool:
        folder = str(self.out_dir or runner.work_dir)
        backend = get_file_backend(folder, backend_args=self.backend_args)
        if isinstance(backend, LocalBackend) and self.file_client_args is None:
            return True
        runner.logger.warning(
            f'AtomicCheckpointHook cannot write atomically here: {type(backend).__name__} with '
            f'file_client_args={self.file_client_args!r} writes. Fix: set out_dir to a local '
            'folder, and leave out file_client_args'
        )
        return False

    def _take_up_last_checkpoint(self, runner) -> None:
        """Go on from the checkpoint resumed from as if just saved: mmengine may save it again.

        One of another folder, or one that was renamed, stays as it is.
        """
        name = self.filename_tmpl.format(runner.epoch if self.by_epoch else runner.iter)
        path = self.file_backend.join_path(self.out_dir, name)
        if runner.message_hub.runtime_info.get('last_ckpt') != path:
            return
        self.last_ckpt = path
        if self._atomic and is_main_process():
            names = runner.message_hub.runtime_info.get(OUTDATED_KEY)
            for name in names if isinstance(names, list) else []:
                # A checkpoint comes from anywhere: other folders are not its own.
                if str(name).endswith('.pth') and os.path.basename(str(name)) == name:
                    _remove(os.path.join(self.out_dir, name))

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        if not self._atomic:
            super()._save_checkpoint_with_step(runner, step, meta)
            return
        self._forget_oldest(runner, step)
        name = self.filename_tmpl.format(step)
        self.last_ckpt = self.file_backend.join_path(self.out_dir, name)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        names = [os.path.basename(path) for path in self._outdated()]
        runner.message_hub.update_info(OUTDATED_KEY, names)
        runner.save_checkpoint(
            self.out_dir,
            name,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
            backend_args=self.backend_args,
            **self.args,
        )
        if is_main_process():
            pointer = os.path.join(runner.work_dir, POINTER_NAME)
            write_atomically(str(self.last_ckpt).encode(), pointer)
        self._remove_outdated()

    def _save_best_checkpoint(self, runner, metrics) -> None:
        super()._save_best_checkpoint(runner, metrics)
        if self._atomic:
            self._remove_outdated()

    def _forget_oldest(self, runner, step: int) -> None:
        """Drop the oldest step from the list of kept ones that the new checkpoint records."""
        if self.max_keep_ckpts <= 0:
            return
        kept = self.keep_ckpt_ids
        if kept and kept[-1] == step:
            return
        if len(kept) == self.max_keep_ckpts:
            name = self.filename_tmpl.format(kept.popleft())
            self.file_backend.remove(self.file_backend.join_path(self.out_dir, name))
        kept.append(step)
        runner.message_hub.update_info('keep_ckpt_ids', list(kept))

    def _outdated(self) -> list[str]:
        """Checkpoints with a successor, but not those that were just written again."""
        best = getattr(self, 'best_ckpt_path_dict', {}).values()
        kept = (getattr(self, 'best_ckpt_path', None), *best)
        return [path for path in self.file_backend.outdated if path not in kept]

    def _remove_outdated(self) -> None:
        """Remove what has a successor; the first process alone does."""
        for path in self._outdated() if is_main_process() else ():
            _remove(path)
        self.file_backend.outdated.clear()


def confine_best_checkpoints(checkpoint: dict, runner) -> None:
    """Look for recorded best checkpoints, by name, in this training's folder alone; in place."""
    hub = checkpoint.get('message_hub')
    infos = hub.get('runtime_info') if isinstance(hub, dict) else None
    if not isinstance(infos, dict):
        return
    folder = runner.work_dir
    for hook in runner.hooks:
        if isinstance(hook, CheckpointHook) and hook.out_dir:
            folder = os.path.join(hook.out_dir, os.path.basename(folder.rstrip(os.sep)))
    for key in infos:
        if key == 'best_ckpt' or str(key).startswith('best_ckpt_'):
            name = os.path.basename(str(infos[key]))
            infos[key] = os.path.join(folder, name) if name.startswith('best_') else None


def _remove(path: str) -> None:
    """Remove a checkpoint that has a successor."""
    Path(path).unlink(missing_ok=True)


def _missed_validation(runner) -> bool:
    """Whether the loop validates at this step and has not done it: killed after the save before."""
    loop, position = runner.train_loop, _position(runner)
    if position is None or runner._val_loop is None:
        return False
    loop._decide_current_val_interval()
    end = loop.max_epochs if isinstance(loop, EpochBasedTrainLoop) else loop.max_iters
    on_time = position % loop.val_interval == 0 or position == end
    is_due = on_time and position >= max(loop.val_begin, 1)
    return is_due and runner.message_hub.get_info(VALIDATED_KEY, -1) != position


def _position(runner) -> int | None:
    """Epochs or iterations done, in the unit in which mmengine's loops validate."""
    loop = runner._train_loop
    if isinstance(loop, EpochBasedTrainLoop):
        return loop.epoch
    return loop.iter if isinstance(loop, IterBasedTrainLoop) else None
