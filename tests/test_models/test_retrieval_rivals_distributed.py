"""Each rival on two or three gloo processes equals one process."""

import importlib.util

import pytest
import torch
from gloo_processes import run_on_ranks
from small_retriever import samples
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.registry import MODELS

LOSSES = [
    dict(type='mmrank.SmoothAPLoss', tau=0.2),
    dict(type='mmrank.ListwiseAPLoss', num_bins=11),
    dict(type='mmrank.BlackBoxAPLoss', lam=2.0, margin=0.1),
    dict(type='mmrank.AUCLoss', tau=0.3),
    dict(type='mmrank.AUCLoss', surrogate='one_sided_huber', tau=0.5),
]
PML_LOSSES = [
    dict(type='mmrank.PMLLoss', loss=loss, **kwargs)
    for loss, kwargs in (
        (dict(type='ContrastiveLoss'), {}),
        (dict(type='TripletMarginLoss', margin=0.4), {}),
        (
            dict(type='MultiSimilarityLoss', beta=10),
            dict(miner=dict(type='MultiSimilarityMiner', epsilon=0.5)),
        ),
        (dict(type='FastAPLoss', num_bins=8), {}),
        (dict(type='MarginLoss', learn_beta=True, nu=0.01), {}),
    )
]
STEPS = 3


def _images(sizes):
    """Batches of all ranks; the last rank's classes are its own."""
    g = torch.Generator().manual_seed(5)
    n = sum(sizes)
    labels = torch.arange(n) % 4
    labels[-sizes[-1] :] = 4 + labels[-sizes[-1] :] % 2
    x = torch.randn(STEPS, n, 6, generator=g, dtype=torch.float64)
    return x, labels


class _Model(nn.Module):
    def __init__(self, loss, memory):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(6, 4).double()
        memory = dict(size=21, dim=4) if memory else None
        self.head = MODELS.build(
            dict(
                type='mmrank.RetrievalHead',
                num_classes=6,
                loss=loss,
                memory=memory,
            )
        ).double()

    def forward(self, x, data_samples):
        return self.head.loss(self.embed(x), data_samples)['loss']


def _train(model, x, labels, ids):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    values = []
    for step in range(STEPS):
        optimizer.zero_grad()
        # The first images are the same every time: the memory knows them.
        names = [i if i % 3 == 0 else i + 100 * step for i in ids]
        loss = model(x[step], samples(labels, names))
        loss.backward()
        optimizer.step()
        values.append(loss.detach())
    return [
        torch.stack(values),
        *(p.detach() for p in model.parameters()),
        *(p.grad for p in model.parameters()),
    ]


def _train_part(rank, sizes, cases):
    x, labels = _images(sizes)
    begin = sum(sizes[:rank])
    mine = slice(begin, begin + sizes[rank])
    ids = range(mine.start, mine.stop)
    return [
        tensor
        for case in cases
        for tensor in _train(
            DistributedDataParallel(_Model(*case)),
            x[:, mine],
            labels[mine],
            ids,
        )
    ]


def _installed():
    """Configs of losses whose package is there."""
    has_pml = importlib.util.find_spec('pytorch_metric_learning')
    return LOSSES + (PML_LOSSES if has_pml else [])


@pytest.mark.parametrize('sizes', [(13, 5), (9, 7, 3)])
def test_equals_one_process(sizes):
    cases = [(loss, memory) for loss in _installed() for memory in (0, 1)]
    results = run_on_ranks(_train_part, len(sizes), sizes, cases)
    x, labels = _images(sizes)
    for number, case in enumerate(cases):
        expected = _train(_Model(*case), x, labels, range(sum(sizes)))
        for tensors in results:
            # As many tensors for each case, a learned threshold apart.
            got, tensors[:] = (
                tensors[: len(expected)],
                tensors[len(expected) :],
            )
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(
                    a, b, rtol=1e-6, atol=1e-9, msg=f'case {number}: {case}'
                )
    assert results == [[]] * len(sizes)


def _local(rank, losses):
    x, labels = _images((8, 8))
    mine = slice(8 * rank, 8 * rank + 8)
    out = []
    for loss in losses:
        model = _Model(dict(loss, scope='local'), memory=False)
        value = model(x[0, mine], samples(labels[mine]))
        value.backward()
        out += [value, *(p.grad for p in model.parameters())]
    return out


def test_local_scope_leaves_the_other_ranks_out():
    losses = _installed()
    results = run_on_ranks(_local, 2, losses)
    for rank, got in enumerate(results):
        for a, b in zip(got, _local(rank, losses), strict=True):
            torch.testing.assert_close(a, b)
