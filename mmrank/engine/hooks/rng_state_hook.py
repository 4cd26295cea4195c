"""The random number generators as a part of the checkpoint."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.hooks import CheckpointHook, EMAHook, Hook, SyncBuffersHook
from mmengine.runner import IterBasedTrainLoop
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.engine.resume.rng_state import get_rng_state, set_rng_state
from mmrank.engine.runners import refuse_flexible_runner
from mmrank.registry import HOOKS

RNG_KEY = 'mmrank_rng_state'


@HOOKS.register_module()
class RNGStateHook(Hook):
    """Resume the random numbers of a training where they were.

    Saves the states of Python's, NumPy's, torch's CPU generator and of all CUDA generators, for
    every process, with the seeds of sampler and workers, and restores them after ``before_train``
    of a resumed run. The end of a validation restores the state from before it, so that one that
    was cut off leaves no trace.

    Exact are checkpoints at the end of an epoch of ``EpochBasedTrainLoop`` and, with
    ``num_workers=0``, all of ``IterBasedTrainLoop``; else the hook warns and names the setting to
    change.
    """

    # After the hooks that draw numbers at the end of an iteration or an
    # epoch, right before the CheckpointHook (90).
    priority = 85

    _state: dict | None = None  # of this process, after its last step
    _all_states: list[dict] | None = None  # of all, when gathered
    _resumed: dict | None = None

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        self._resumed = checkpoint.get(RNG_KEY)

    def before_train(self, runner) -> None:
        refuse_flexible_runner(type(runner))
        limits = [*_resume_limits(runner)]
        if runner.iter > 0:
            limits += self._restore(runner)
        if limits:
            text = '\n- '.join(['Not all of a resume of this training is exact:', *limits])
            runner.logger.warning(text)

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        hooks = [x for x in runner.hooks if isinstance(x, CheckpointHook) and not x.by_epoch]
        is_due = get_world_size() == 1 or any(
            x.every_n_train_iters(runner, x.interval, x.save_begin) or x.is_last_train_iter(runner)
            for x in hooks
        )
        self.note(runner, gather=is_due)

    def after_train_epoch(self, runner) -> None:
        self.note(runner, gather=True)

    def before_val(self, runner) -> None:
        # A best model may be saved then: its state is the last step's.
        if self._state is not None and self._all_states is None:
            self._all_states = all_gather_object(self._state)

    def after_val(self, runner) -> None:
        if self._state is not None:
            set_rng_state(self._state)

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        # In the main process only.
        loader = runner.train_loop.dataloader
        samplers = _samplers(loader)
        checkpoint[RNG_KEY] = {
            'processes': self._all_states or [self._state or _state_of(loader)],
            'sampler_seed': samplers[0].seed if samplers else None,
        }

    def note(self, runner, gather: bool) -> None:
        """Keep the present state; ``gather`` it, in all processes, for a checkpoint."""
        self._state = _state_of(runner.train_loop.dataloader)
        self._all_states = all_gather_object(self._state) if gather else None

    def _restore(self, runner) -> list[str]:
        """Set all generators to the state of the checkpoint; return what differs."""
        if self._resumed is None:
            return [
                f'the checkpoint has no "{RNG_KEY}", as it was saved without mmrank.RNGStateHook: '
                'random numbers differ'
            ]
        states = self._resumed['processes']
        seed = self._resumed['sampler_seed']
        self._resumed = None
        loop = runner.train_loop
        if seed is not None:
            for sampler in _samplers(loop.dataloader):
                sampler.seed = seed
        if len(states) != get_world_size():
            return [
                f'the checkpoint has random states of {len(states)} processes, this run has '
                f'{get_world_size()}: random numbers differ; resume with as many processes'
            ]
        self._state = state = states[get_rank()]
        # With randomness.diff_rank_seed each process has another one.
        if state['worker_seed'] is not None and _worker_seed(loop.dataloader) is not None:
            loop.dataloader.worker_init_fn.keywords['seed'] = state['worker_seed']
        set_rng_state(state)
        if isinstance(loop, IterBasedTrainLoop):
            # After all hooks its iterator is built, and may skip what was seen: both draw numbers.
            restore = partial(set_rng_state, state)
            loop.dataloader_iterator = _RestoringIterator(loop.dataloader_iterator, restore)
        elif loop.iter % max(len(loop.dataloader), 1):
            return [
                f'the checkpoint is from the middle of an epoch (iteration {loop.iter}, '
                f'{len(loop.dataloader)} per epoch), which mmengine starts over: set '
                'default_hooks.checkpoint.by_epoch=True'
            ]
        return []


class _RestoringIterator(Iterator):
    """Runs a function between the build of a loop's iterator and its first item."""

    def __init__(self, iterator: Any, restore: Callable[[], None]) -> None:
        self._iterator = iterator
        self._restore = restore

    def __next__(self) -> Any:
        if self._restore is not None:
            # Newer mmengine builds lazily, older ones when constructed.
            getattr(self._iterator, '_ensure_iterator', lambda: None)()
            self._restore()
            self._restore = None
        return next(self._iterator)

    def skip_iter(self, num_iters: int) -> None:
        self._iterator.skip_iter(num_iters)


def _state_of(loader) -> dict:
    return {**get_rng_state(), 'worker_seed': _worker_seed(loader)}


def _samplers(loader) -> list:
    """The samplers of a loader that hold a seed."""
    batch = getattr(loader, 'batch_sampler', None)
    found = (getattr(loader, 'sampler', None), getattr(batch, 'sampler', None), batch)
    return [item for item in found if hasattr(item, 'seed')]


def _worker_seed(loader) -> int | None:
    return getattr(getattr(loader, 'worker_init_fn', None), 'keywords', {}).get('seed')


def _resume_limits(runner) -> Iterator[str]:
    """Yield why a resume of this training is not exact, each with its fix if there is one."""
    loop = runner.train_loop
    loader = loop.dataloader
    is_iter_based = isinstance(loop, IterBasedTrainLoop)
    if getattr(loader, 'num_workers', 0) and (is_iter_based or loader.persistent_workers):
        fix = 'train_dataloader.persistent_workers=False'
        if is_iter_based:
            fix = 'train_dataloader.num_workers=0, or an epoch-based loop'
        yield f'workers that live longer than an epoch draw other augmentations: set {fix}'
    if get_world_size() > 1 and _has_own_statistics(runner):
        yield (
            'batch norm statistics of the first process only are saved, and validations give other '
            "values: set sync_bn='torch' on GPUs or, without EMAHook, add dict(type="
            "'SyncBuffersHook') to custom_hooks"
        )


def _has_own_statistics(runner) -> bool:
    """Whether batch norm's statistics differ by process; the first one's are saved."""
    has_average = any(isinstance(hook, EMAHook) for hook in runner.hooks)
    is_synchronised = any(isinstance(hook, SyncBuffersHook) for hook in runner.hooks)
    is_synchronised = is_synchronised or getattr(runner.model, 'broadcast_buffers', False)
    if is_synchronised and not has_average:  # which it does not reach
        return False
    runner.model.train()  # as the loop does next; frozen layers stay in evaluation
    return any(
        isinstance(module, _BatchNorm)
        and not isinstance(module, nn.SyncBatchNorm)
        and module.track_running_stats
        and module.training
        for module in runner.model.modules()
    )
