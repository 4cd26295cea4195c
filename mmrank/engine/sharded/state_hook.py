"""Saves and loads state that is spread over the processes."""

import io
import secrets
from functools import partial
from pathlib import Path

import torch
from mmengine.dist import broadcast_object_list, get_rank, get_world_size, is_main_process
from mmengine.fileio import LocalBackend, get_file_backend, join_path, put
from mmengine.hooks import Hook
from mmengine.runner import find_latest_checkpoint

from mmrank.engine.resume.whole_checkpoint import all_succeed
from mmrank.engine.runners import unwrap_model
from mmrank.registry import HOOKS
from mmrank.state.shard_files import (
    SHARD_FILES_KEY,
    read_shards,
    remove_lost_shards,
    remove_shards,
    shard_names,
)
from mmrank.state.sharding import load_shards, save_shard, sharded_states


@HOOKS.register_module()
class ShardedStateHook(Hook):
    """Saves the shards of ``storage='sharded'`` next to each checkpoint.

    Every process writes its rows to a file of its own before the first one writes the checkpoint,
    which names them. ``mmrank.AtomicCheckpointHook`` takes a checkpoint for whole only with its
    shards, and removes both together. A resume reads them on any number of processes; whole tables
    load into shards, and shards into whole tables. ``tools/train.py`` adds the hook.

    All processes have to see the folder, which belongs to one training. Shards go through the
    storage backend of the checkpoint; only in local folders outdated ones are removed.

    Raises:
        UserError: Before training, if there are shards and mmengine's own ``FlexibleRunner``, which
            calls hooks after a checkpoint is loaded; if a shard is missing or damaged.
    """

    # No other hook may see a training whose rows are not loaded yet.
    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self._runner: object | None = None
        self._loaded: list[str] = []  # shards of the checkpoint that was loaded
        self._saved: list[str] = []  # of the checkpoint that is being saved
        self._swept: set[str] = set()

    def before_run(self, runner) -> None:
        """Let all processes take part in a checkpoint, where a state is in shards."""
        if self._runner is not runner and _has_shards(runner):
            self._runner = runner
            runner.save_checkpoint = partial(self._save, runner, runner.save_checkpoint)

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        self._loaded = list(checkpoint.get(SHARD_FILES_KEY, []))

    def before_train(self, runner) -> None:
        """Load the rows of this process, which a test does not need."""
        model = unwrap_model(runner.model)
        states = sharded_states(model).values()
        for state in states:
            state.is_saved = True
        if any(state.awaits_any for state in states):
            named = runner._resume if isinstance(runner._resume, str) else runner._load_from
            source = named or find_latest_checkpoint(runner.work_dir)
            load_shards(model, read_shards(source, self._loaded))

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        if self._saved:
            checkpoint[SHARD_FILES_KEY] = self._saved

    def _save(self, runner, save, out_dir, filename, *args, **kwargs):
        content = save_shard(unwrap_model(runner.model))
        place = dict(backend_args=kwargs.get('backend_args'))
        is_local = isinstance(get_file_backend(str(out_dir), **place), LocalBackend)
        if is_local and is_main_process() and str(out_dir) not in self._swept:
            self._swept.add(str(out_dir))
            remove_lost_shards(out_dir)
        # The others wait here for the first process.
        token = [secrets.token_hex(6)]
        broadcast_object_list(token)
        for part in content.values():
            part['token'] = token[0]
        names = shard_names(filename, token[0], get_world_size())
        own = names[get_rank()]
        file = io.BytesIO()
        torch.save(content, file)
        all_succeed(lambda: put(file.getvalue(), join_path(out_dir, own, **place), **place))
        self._saved = names
        try:
            result = save(out_dir, filename, *args, **kwargs)
        finally:
            self._saved = []
        if is_local and is_main_process():
            remove_shards(Path(out_dir) / filename, keep=names)
        return result


def _has_shards(runner) -> bool:
    """Whether a state of the model is spread over the processes."""
    states = sharded_states(unwrap_model(runner.model)).values()
    return not all(state.shard.is_whole for state in states)
