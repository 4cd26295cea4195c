"""Runs a function on several gloo processes and gathers its results."""

import multiprocessing
import socket
from collections.abc import Callable
from multiprocessing.context import BaseContext
from queue import Empty

import torch
import torch.distributed as dist
from torch import Tensor


def _worker(rank, world_size, port, function, args, queue):
    torch.set_num_threads(1)
    dist.init_process_group(
        'gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=world_size
    )
    result = function(rank, *args)
    queue.put((rank, [x.detach().numpy() for x in result]))
    dist.barrier()
    dist.destroy_process_group()


def free_port() -> int:
    """A port that no process listens at."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def run_on_ranks(
    function: Callable[..., list[Tensor]],
    world_size: int,
    *args: object,
    context: BaseContext | None = None,
) -> list[list[Tensor]]:
    """By rank, the list of tensors that ``function(rank, *args)`` returned.

    Args:
        function: Of a module, so that it can be pickled.
        world_size: Number of processes.
        *args: What the function takes after the rank.
        context: Of :mod:`multiprocessing`; None: starts an interpreter for each process.

    Raises:
        RuntimeError: If a process ends with an error, or none of them within ten minutes.
    """
    context = context or multiprocessing.get_context('spawn')
    queue, port = context.Queue(), free_port()
    workers = [
        context.Process(target=_worker, args=(rank, world_size, port, function, args, queue))
        for rank in range(world_size)
    ]
    for worker in workers:
        worker.start()
    try:
        results = _results(queue, workers)
        for worker in workers:
            worker.join(60)
            _require_no_error(workers)
    finally:
        for worker in workers:
            worker.kill()
    return [[torch.as_tensor(x) for x in results[rank]] for rank in range(world_size)]


def _require_no_error(workers) -> None:
    codes = [worker.exitcode for worker in workers]
    if any(codes):
        raise RuntimeError(f'exit status by rank: {codes}')


def _results(queue, workers) -> dict[int, list]:
    """What the ranks sent; an error as soon as one of them broke."""
    results = {}
    for _ in range(600):
        try:
            while len(results) < len(workers):
                rank, result = queue.get(timeout=1)
                results[rank] = result
            return results
        except Empty:
            _require_no_error(workers)
    raise RuntimeError(f'only ranks {sorted(results)} finished in time')
