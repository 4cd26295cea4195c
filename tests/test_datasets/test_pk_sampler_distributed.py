"""PKSampler in real processes, its seed drawn by the first of them."""

import socket
from collections import Counter

import numpy as np
import pytest
import torch.distributed as dist
from forked_processes import process_context

from mmrank.datasets.samplers.pk_sampler import PKSampler


class Labelled(list):
    """Nothing but labels."""

    def get_gt_labels(self):
        """As mmpretrain's data sets."""
        return np.array(self)


def draw(rank, world_size, port, queue):
    """Send the first two batches of a rank."""
    address = f'tcp://127.0.0.1:{port}'
    dist.init_process_group('gloo', init_method=address, rank=rank, world_size=world_size)
    np.random.seed(rank)  # what each would draw on its own differs
    dataset = Labelled([c for c in range(12) for _ in range(5)])
    sampler = PKSampler(dataset, batch_size=24, num_per_class=4, num_batches=2)
    queue.put((rank, sampler.seed, list(sampler)))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize('world_size', [2, 3])
def test_ranks_agree_on_a_seed_of_their_own(world_size):
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    context = process_context()
    queue = context.Queue()
    ranks = [
        context.Process(target=draw, args=(rank, world_size, port, queue))
        for rank in range(world_size)
    ]
    for rank in ranks:
        rank.start()
    results = sorted(queue.get(timeout=120) for _ in ranks)
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0
    assert len({seed for _, seed, _ in results}) == 1
    share = 24 // world_size
    for start in (0, share):
        batch = [i // 5 for *_, own in results for i in own[start:][:share]]
        assert Counter(Counter(batch).values()) == {4: 6}
