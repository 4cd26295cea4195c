"""The samplers of positives in real processes, with a seed of their own."""

import socket
from itertools import chain

import numpy as np
import pytest
import torch.distributed as dist
from forked_processes import process_context

from mmrank.datasets.samplers import MultiLabelPositiveSampler, PositiveRateSampler

BATCH = 12


class Labelled(list):
    """Nothing but lists of classes."""

    def get_data_info(self, index):
        """As mmpretrain's data sets."""
        return dict(gt_label=self[index])


def build():
    several = Labelled([[i % 3] if i % 4 else [] for i in range(48)])
    binary = Labelled([int(i % 6 == 0) for i in range(48)])
    return [
        PositiveRateSampler(binary, BATCH, num_positives=3),
        MultiLabelPositiveSampler(several, BATCH, 2),
    ]


def draw(rank, world_size, port, queue):
    """Send seed and first epoch of each sampler."""
    address = f'tcp://127.0.0.1:{port}'
    dist.init_process_group('gloo', init_method=address, rank=rank, world_size=world_size)
    np.random.seed(rank)  # what each would draw on its own differs
    queue.put((rank, [(s.seed, list(s)) for s in build()]))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize('world_size', [2, 3])
def test_ranks_deal_out_one_stream(world_size):
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
    results = [found for _, found in sorted(queue.get(timeout=240) for _ in ranks)]
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0
    for kind, sampler in enumerate(build()):
        seeds = {found[kind][0] for found in results}
        assert len(seeds) == 1
        sampler.seed = seeds.pop()
        share = BATCH // world_size
        for number in range(4):
            parts = [found[kind][1][number * share : (number + 1) * share] for found in results]
            assert sorted(chain(*parts)) == sorted(sampler.global_batch(number))
