"""Calls a function on several gloo processes of this machine."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def on_ranks(function: Callable, ranks: int, *args: Any, method: str = 'spawn') -> list:
    """Call ``function(rank, *args)`` in a process group, on one thread each; results by rank."""
    with tempfile.TemporaryDirectory() as folder:
        given = (ranks, folder, function, args)
        try:
            mp.start_processes(_work, given, ranks, start_method=method)
        except mp.ProcessException as error:
            raise ChildProcessError(f'a process failed: {error}') from None
        return [torch.load(Path(folder, f'{rank}.pt'), weights_only=False) for rank in range(ranks)]


def _work(rank: int, ranks: int, folder: str, function: Callable, args: tuple) -> None:
    torch.set_num_threads(1)
    dist.init_process_group('gloo', f'file://{folder}/store', rank=rank, world_size=ranks)
    torch.save(function(rank, *args), Path(folder, f'{rank}.pt'))
    dist.barrier()
    dist.destroy_process_group()
