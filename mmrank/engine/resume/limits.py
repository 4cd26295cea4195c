"""What a resumed training does not do bit for bit."""

from collections.abc import Iterator

from mmengine.dist import get_world_size
from mmengine.hooks import EMAHook, SyncBuffersHook
from mmengine.runner import IterBasedTrainLoop
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def resume_limits(runner) -> Iterator[str]:
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
