"""Each rival on two or three gloo processes equals one process."""

import importlib.util

import pytest
import torch
from gloo_processes import run_on_ranks
from small_retriever import samples
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import EmbeddingLoss
from mmrank.registry import MODELS

pytestmark = pytest.mark.processes

LOSSES = [
    dict(type='mmrank.SmoothAPLoss', tau=0.2),
    dict(type='mmrank.ListwiseAPLoss', num_bins=11),
    dict(type='mmrank.BlackBoxAPLoss', lam=2.0, margin=0.1),
    dict(type='mmrank.AUCLoss', tau=0.3),
    dict(type='mmrank.AUCLoss', surrogate='one_sided_huber', tau=0.5),
    dict(type='mmrank.RecallAtKLoss', ks='R', tau=0.2),
    dict(type='mmrank.HAPLoss', tau=0.2),
    dict(type='mmrank.NDCGLoss', tau=0.2),
    # The first rank draws the mixtures.
    dict(type='mmrank.RecallAtKLoss', ks=[1, 2], tau=0.2, mixup=True),
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
    """Batches of all ranks, and labels on two levels; the last rank's classes are its own."""
    g = torch.Generator().manual_seed(5)
    n = sum(sizes)
    labels = torch.arange(n) % 4
    labels[-sizes[-1] :] = 4 + labels[-sizes[-1] :] % 2
    x = torch.randn(STEPS, n, 6, generator=g, dtype=torch.float64)
    return x, torch.stack([labels // 2, labels], 1)


class _Model(nn.Module):
    def __init__(self, loss, memory):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(6, 4).double()
        if memory is None:
            self.head = EmbeddingLoss(MODELS.build(loss))
            return
        memory = dict(size=21, dim=4) if memory else None
        self.head = MODELS.build(
            dict(type='mmrank.RetrievalHead', num_classes=6, loss=loss, memory=memory)
        ).double()

    def forward(self, x, data_samples):
        if isinstance(self.head, EmbeddingLoss):
            return self.head(self.embed(x), torch.stack([s.gt_label for s in data_samples]))
        return self.head.loss(self.embed(x), data_samples)['loss']


def _train(model, x, labels, ids, one_level):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    values = []
    for step in range(STEPS):
        optimizer.zero_grad()
        # The first images are the same every time: the memory knows them.
        names = [i if i % 3 == 0 else i + 100 * step for i in ids]
        # A memory takes one level.
        loss = model(x[step], samples(labels[:, -1] if one_level else labels, names))
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
            DistributedDataParallel(_Model(*case)), x[:, mine], labels[mine], ids, case[1]
        )
    ]


def _installed():
    """Configs of losses whose package is there."""
    has_pml = importlib.util.find_spec('pytorch_metric_learning')
    return LOSSES + (PML_LOSSES if has_pml else [])


def _local(rank, sizes, loss):
    """Loss and gradients of a rank that looks at its own batch alone."""
    x, labels = _images(sizes)
    begin = sum(sizes[:rank])
    mine = slice(begin, begin + sizes[rank])
    model = _Model(dict(loss, scope='local'), memory=False)
    value = model(x[0, mine], samples(labels[mine]))
    value.backward()
    return [value, *(p.grad for p in model.parameters())]


def _both_scopes(rank, sizes, cases, losses):
    # Starting a process costs more than all the rest.
    together = _train_part(rank, sizes, cases)
    return together + [x for loss in losses for x in _local(rank, sizes, loss)]


@pytest.mark.slow
@pytest.mark.parametrize('sizes', [(13, 5), (9, 7, 3)])
def test_equals_one_process(sizes):
    losses = _installed()
    cases = [(loss, memory) for loss in losses for memory in (False, True)]
    # Without a head.
    cases += [(loss, None) for loss in (LOSSES[0], dict(type='mmrank.StableAPLoss'))]
    results = run_on_ranks(_both_scopes, len(sizes), sizes, cases, losses)
    images = _images(sizes)
    for rank, tensors in enumerate(results):
        left = iter(tensors)
        for case in cases:
            expected = _train(_Model(*case), *images, range(sum(sizes)), case[1])
            for wanted in expected:
                torch.testing.assert_close(next(left), wanted, rtol=1e-6, atol=1e-9, msg=str(case))
        for loss in losses:
            for wanted in _local(rank, sizes, loss):
                torch.testing.assert_close(next(left), wanted, msg=str(loss))
        assert next(left, None) is None
