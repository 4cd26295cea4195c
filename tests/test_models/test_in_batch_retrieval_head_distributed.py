"""Pairs of images on two gloo processes equal one process."""

import torch
from gloo_processes import run_on_ranks
from small_retriever import samples
from test_in_batch_retrieval_head import LABELS, Images, build
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.datasets.samplers import ClassPairSampler


class _Model(nn.Module):
    """A linear encoder of made-up images, and the head."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.images = torch.randn(9, 5, generator=g, dtype=torch.float64)
        weight = torch.randn(5, 3, generator=g, dtype=torch.float64)
        self.weight = nn.Parameter(weight)
        self.head = build(scale=3, bias=-0.5)

    def forward(self, ids):
        feats = self.images[ids] @ self.weight
        labels = [LABELS[i] for i in ids]
        return self.head.loss(feats, samples(labels, ids.tolist()))['loss']


def _steps():
    model = _Model()
    wrapped = model
    if torch.distributed.is_initialized():
        wrapped = DistributedDataParallel(model)
    sampler = ClassPairSampler(Images(LABELS), 4, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for number in range(3):
        optimizer.zero_grad()
        loss = wrapped(torch.from_numpy(sampler.rank_batch(number)))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [model.weight, torch.stack(losses)]


def _on_rank(rank):
    return _steps()


def test_two_ranks_equal_one_process():
    expected = _steps()
    for results in run_on_ranks(_on_rank, 2):
        for x, y in zip(results, expected, strict=True):
            torch.testing.assert_close(x, y.detach(), rtol=1e-9, atol=1e-12)
