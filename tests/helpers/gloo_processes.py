"""Runs a function on several gloo processes and gathers its results."""

import socket
from queue import Empty

import torch
import torch.distributed as dist
from forked_processes import process_context


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


def run_on_ranks(function, world_size, *args):
    """By rank, the list of tensors that ``function(rank, *args)`` returned."""
    context = process_context()
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
            assert worker.exitcode == 0
    finally:
        for worker in workers:
            worker.kill()
    return [[torch.as_tensor(x) for x in results[rank]] for rank in range(world_size)]


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
            codes = [worker.exitcode for worker in workers]
            assert not any(codes), f'exit status by rank: {codes}'
    raise AssertionError(f'only ranks {sorted(results)} finished in time')
