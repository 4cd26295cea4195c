"""The ranks of distributed training."""

import torch.distributed as dist


def world_group():
    """The group of all ranks, or None in a single process."""
    if (
        dist.is_available()
        and dist.is_initialized()
        and dist.get_world_size() > 1
    ):
        return dist.group.WORLD
    return None
