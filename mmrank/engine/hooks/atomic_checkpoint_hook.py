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

#: A runtime info. Not 'val...': mmengine's log shows the runtime infos of such names.
_VALIDATED_KEY = 'mmrank_validated_at'
#: A runtime info: the names of the checkpoints that this one replaces, with slashes between.
_REPLACED_KEY = 'mmrank_replaced'
#: Ending of the file that mmdet's CocoMetric writes, and of its copy beside a best checkpoint.
BOXES = '.bbox.json'


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """mmengine's ``CheckpointHook``, safe against a kill at any moment.

    A drop-in for ``default_hooks.checkpoint`` with all options of the original. On a local file
    system:

    * Checkpoints, best ones too, get their names only when their content is on the disk. Outdated
      ones are removed after the new one is written, or, after a kill between, when it resumes.
    * Before ``resume=True`` reads the file ``last_checkpoint``, it is set to the last whole one.
    * A resumed run first does the validation of its last checkpoint if the kill came before its
      end. mmengine leaves it out, and with it the best checkpoint and a ``ReduceOnPlateau`` step.
    * The boxes that CocoMetric (``outfile_prefix``) wrote of a best checkpoint are kept with it.
    * The best checkpoint that a resumed one names counts, and is removed, in this training's folder
      only.

    With :class:`RNGStateHook` a resumed training ends with the same bits as one that was not
    interrupted. A checkpoint in the middle of a gradient accumulation lacks the gradients so far,
    as mmengine says when it resumes: let ``accumulative_counts`` divide the interval. Other storage
    backends keep the behaviour of the original.

    Examples:
        >>> default_hooks = dict(
        ...     checkpoint=dict(type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=3))
        >>> custom_hooks = [dict(type='mmrank.RNGStateHook')]
    """

    _atomic = False

    def before_run(self, runner) -> None:
        refuse_flexible_runner(type(runner))
        if not runner._resume or runner._load_from is not None:
            return
        if is_main_process():
            self._point_to_whole(runner)
        barrier()

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        confine_best_checkpoints(checkpoint, runner)

    def before_train(self, runner) -> None:
        folder = str(self.out_dir or runner.work_dir)
        backend = get_file_backend(folder, backend_args=self.backend_args)
        self._atomic = isinstance(backend, LocalBackend) and self.file_client_args is None
        if self._atomic:
            self.backend_args = {'backend': ATOMIC_BACKEND}
        else:
            runner.logger.warning(
                f'AtomicCheckpointHook cannot write atomically here: {type(backend).__name__} '
                'writes. Fix: set out_dir to a local folder, and leave out file_client_args'
            )
        super().before_train(runner)
        if self._atomic and is_main_process():
            remove_temporary_files(self.out_dir)
            remove_temporary_files(runner.work_dir)
        if runner.iter > 0:
            # Go on from the checkpoint resumed from as if just saved: mmengine may save it again.
            # One of another folder, or one that was renamed, stays as it is.
            name = self.filename_tmpl.format(runner.epoch if self.by_epoch else runner.iter)
            path = self.file_backend.join_path(self.out_dir, name)
            if runner.message_hub.runtime_info.get('last_ckpt') == path:
                self.last_ckpt = path
                if self._atomic:
                    self._remove_replaced(runner)
            position = _position(runner)
            if position is None or runner._val_loop is None:
                return
            loop = runner.train_loop
            loop._decide_current_val_interval()
            end = loop.max_epochs if isinstance(loop, EpochBasedTrainLoop) else loop.max_iters
            on_time = position % loop.val_interval == 0 or position == end
            is_due = on_time and position >= max(loop.val_begin, 1)
            # Killed between the save and the end of the validation.
            if is_due and runner.message_hub.get_info(_VALIDATED_KEY, -1) != position:
                runner.logger.info('The validation of the last checkpoint did not end: validating.')
                runner.val_loop.run()

    def after_val_epoch(self, runner, metrics) -> None:
        position = _position(runner)
        if position is not None:
            runner.message_hub.update_info(_VALIDATED_KEY, position)
        super().after_val_epoch(runner, metrics)

    @staticmethod
    def _point_to_whole(runner) -> None:
        pointer = Path(runner.work_dir) / POINTER_NAME
        if not os.path.lexists(pointer):
            return
        whole = find_last_whole_checkpoint(runner.work_dir)
        if whole is None:
            runner.logger.warning(
                f'No complete checkpoint in {runner.work_dir}: the training starts from the '
                'beginning.'
            )
            pointer.unlink()
        else:
            write_atomically(whole.encode(), pointer)

    def _save_checkpoint_with_step(self, runner, step, meta) -> None:
        if self._atomic:
            replaced = [os.path.basename(x) for x in self.file_backend.outdated]  # the last best
            if self.max_keep_ckpts > 0:
                kept = self.keep_ckpt_ids
                if len(kept) == self.max_keep_ckpts and kept[-1] != step:
                    replaced.append(self.filename_tmpl.format(kept[0]))
            runner.message_hub.update_info(_REPLACED_KEY, '/'.join(replaced))
        super()._save_checkpoint_with_step(runner, step, meta)
        self._remove_outdated()

    def _save_best_checkpoint(self, runner, metrics) -> None:
        if not hasattr(self, 'file_backend'):
            return  # A validation without a training has no checkpoint to keep.
        before = self._best_paths()
        super()._save_best_checkpoint(runner, metrics)
        if self._atomic and is_main_process():
            for path in self._best_paths() - before:
                for metric in runner.val_loop.evaluator.metrics:
                    boxes = Path(f'{getattr(metric, "outfile_prefix", None)}{BOXES}')
                    if type(metric).__name__ == 'CocoMetric' and boxes.is_file():
                        write_atomically(boxes.read_bytes(), Path(path).with_suffix(BOXES))
        self._remove_outdated()

    def _best_paths(self) -> set[str]:
        best = getattr(self, 'best_ckpt_path_dict', {}).values()
        return {*filter(None, (getattr(self, 'best_ckpt_path', None), *best))}

    def _remove_replaced(self, runner) -> None:
        """Remove what the checkpoint resumed from replaces: a kill may have come before that."""
        names = str(runner.message_hub.runtime_info.get(_REPLACED_KEY, ''))
        for name in names.split('/'):
            if name.endswith('.pth'):
                self.file_backend.remove(os.path.join(self.out_dir, name))
        self._remove_outdated()

    def _remove_outdated(self) -> None:
        """Remove checkpoints with a successor, but not those that were just written again."""
        if not self._atomic:
            return
        kept = self._best_paths()
        for path in self.file_backend.outdated:
            if path not in kept and is_main_process():
                Path(path).unlink(missing_ok=True)
                Path(path).with_suffix(BOXES).unlink(missing_ok=True)
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


def _position(runner) -> int | None:
    """Epochs or iterations done, in the unit in which mmengine's loops validate."""
    loop = runner._train_loop
    if isinstance(loop, EpochBasedTrainLoop):
        return loop.epoch
    return loop.iter if isinstance(loop, IterBasedTrainLoop) else None
