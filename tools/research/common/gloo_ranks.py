"""Calls a function on several gloo processes of this machine."""

import socket
from collections.abc import Callable
from queue import Empty
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def on_ranks(function: Callable, ranks: int, *args: Any, method: str = 'spawn') -> list:
    """Call ``function(rank, *args)`` in a process group, on one thread each."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    context = mp.get_context(method)
    queue = context.Queue()
    workers = [
        context.Process(target=_work, args=(rank, ranks, port, queue, function, args))
        for rank in range(ranks)
    ]
    for process in workers:
        process.start()
    results = {}
    while len(results) < ranks:
        try:
            rank, result = queue.get(timeout=1)
            results[rank] = result
        except Empty:
            failed = [p.exitcode for p in workers if p.exitcode]
            if failed:
                for process in workers:
                    process.terminate()
                raise ChildProcessError(f'a process ended with {failed[0]}') from None
    for process in workers:
        process.join()
    return [results[rank] for rank in range(ranks)]


def _work(rank, ranks, port, queue, function, args) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        'gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=ranks
    )
    queue.put((rank, function(rank, *args)))
    dist.barrier()
    dist.destroy_process_group()
