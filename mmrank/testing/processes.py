"""Runs a function on several gloo processes of this machine and gathers its results."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import ProcessException

#: How long a rank waits for another.
TIMEOUT = timedelta(minutes=10)


def run_on_ranks(function: Callable, world_size: int, *args: object, method: str = 'spawn') -> list:
    """By rank, what ``function(rank, *args)`` returned, on one thread each.

    The function is of a module, so that it can be pickled; tensors in its lists, tuples and dicts
    come back without their graphs. ``method`` is how :mod:`multiprocessing` starts a process.
    ChildProcessError if a process ends with an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = (world_size, folder, function, args)
        try:
            mp.start_processes(_work, given, world_size, start_method=method)
        except ProcessException as error:
            raise ChildProcessError(f'a process failed: {error}') from None
        paths = [Path(folder, f'{rank}.pt') for rank in range(world_size)]
        return [torch.load(x, weights_only=False) for x in paths]  # nosec B614: of the processes


def _work(rank: int, world_size: int, folder: str, function: Callable, args: tuple) -> None:
    torch.set_num_threads(1)
    store = Path(folder, 'store').as_uri()
    dist.init_process_group('gloo', store, TIMEOUT, world_size, rank)
    torch.save(_detached(function(rank, *args)), Path(folder, f'{rank}.pt'))
    dist.barrier()
    dist.destroy_process_group()


def _detached(found: object) -> object:
    """Tensors without the graph that made them, in lists, tuples and dicts as well."""
    if isinstance(found, torch.Tensor):
        return found.detach().clone()
    if isinstance(found, dict):
        return {key: _detached(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(map(_detached, found))
    return found
