"""Two or three gloo processes give what one process gives.

Starting processes costs most of the time, so they run all cases.
"""

import importlib.util

import pytest
import torch
from gloo_processes import run_on_ranks
from mmengine.registry import MODELS
from small_retriever import CLASSES, DIM, SOPRC, STABLE_AP, build_head, samples
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import EmbeddingLoss

STEPS = 3
SIZES = {2: (7, 4), 3: (5, 0, 6)}
HAP = dict(type='mmrank.HAPLoss', tau=0.2)
SUM = dict(
    type='mmrank.SumLoss', losses=[STABLE_AP, dict(type='mmrank.AUCLoss')], weights=[1.0, 0.5]
)
CASES = [
    dict(loss=dict(STABLE_AP, rho='auto'), memory=dict(size=14, dim=DIM)),
    dict(
        loss=dict(STABLE_AP, rho='auto', mean_scope='global'),
        memory=dict(size=23, dim=DIM, start_iter=1),
        copies=2,
    ),
    dict(loss=SOPRC, memory=dict(size=30, dim=DIM)),
    dict(loss=SUM, memory=dict(size=14, dim=DIM)),
    dict(loss=HAP, levels=True),
    # The first rank draws the mixtures.
    dict(loss=dict(type='mmrank.RecallAtKLoss', ks=[1, 2], tau=0.2, mixup=True)),
    dict(loss=dict(type='mmrank.StableAPLoss'), has_head=False),
]
#: Their state is no float32 average.
_IN_DOUBLE = [f'mmrank.{x}Loss' for x in ('HAP', 'RecallAtK', 'PML')]
if importlib.util.find_spec('pytorch_metric_learning'):
    miner = dict(type='MultiSimilarityMiner', epsilon=0.5)
    loss = dict(type='MultiSimilarityLoss', beta=10)
    CASES += [dict(loss=dict(type='mmrank.PMLLoss', loss=loss, miner=miner))]


class _Model(nn.Module):
    def __init__(self, loss, copies=1, levels=False, has_head=True, **kwargs):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, DIM).double()
        self.copies = copies
        self.levels = levels
        head = build_head(loss, **kwargs) if has_head else EmbeddingLoss(MODELS.build(loss))
        self.head = head.double() if loss['type'] in _IN_DOUBLE else head

    def forward(self, x, batch):
        feats = self.linear(x)
        if isinstance(self.head, EmbeddingLoss):
            labels = [sample.gt_label for sample in batch]
            return self.head(feats, torch.cat([torch.zeros(0).long(), *labels]))
        copies = [feats * (1 + 0.3 * i) + 0.1 * i for i in range(self.copies)]
        return self.head.loss(torch.cat(copies), batch, self.copies)['loss']


def _data(step, sizes):
    g = torch.Generator().manual_seed(step)
    n = sum(sizes)
    x = torch.randn(n, 6, generator=g, dtype=torch.float64)
    ids = torch.randperm(17, generator=g)[:n]
    return x, (ids % CLASSES).tolist(), ids.tolist()


def _train(model, sizes, part):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        x, labels, ids = (values[part] for values in _data(step, sizes))
        optimizer.zero_grad()
        if getattr(model, 'module', model).levels:
            labels = [(label // 2, label) for label in labels]
        loss = model(x, samples(labels, ids))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model = getattr(model, 'module', model)
    return [
        torch.tensor(losses, dtype=torch.float64),
        model.linear.weight.detach(),
        model.linear.weight.grad,
        *model.head.state_dict().values(),
    ]


def _part(rank, sizes):
    begin = sum(sizes[:rank])
    return slice(begin, begin + sizes[rank])


def _local(rank, sizes):
    """Loss and memory of the second batch, each rank searching its own."""
    model = _Model(loss={**STABLE_AP, 'scope': 'local', 't': 0.0}, memory=dict(size=40, dim=DIM))
    for step in range(2):
        x, labels, ids = (v[_part(rank, sizes)] for v in _data(step, sizes))
        loss = model(x, samples(labels, ids))
    entries = model.head.memory.entries()
    return [loss, entries.embeddings, entries.labels, entries.sample_ids]


def _all_cases(rank, sizes):
    results, counts = [], []
    for case in CASES:
        model = DistributedDataParallel(_Model(**case))
        results.append(_train(model, sizes, _part(rank, sizes)))
        counts.append(len(results[-1]))
    results.append(_local(rank, sizes))
    counts.append(len(results[-1]))
    return [torch.tensor(counts), *(x for r in results for x in r)]


@pytest.fixture(scope='module', params=[2, pytest.param(3, marks=pytest.mark.slow)])
def ranks(request):
    """Sizes, and by rank the results of each case."""
    sizes = SIZES[request.param]
    results = []
    for counts, *values in run_on_ranks(_all_cases, request.param, sizes):
        values = iter(values)
        results.append([[next(values) for _ in range(n)] for n in counts])
    return sizes, results


@pytest.mark.parametrize('case', range(len(CASES)))
def test_equals_one_process(ranks, case):
    sizes, results = ranks
    expected = _train(_Model(**CASES[case]), sizes, slice(None))
    for result in results:
        assert len(result[case]) == len(expected)
        for a, b in zip(result[case], expected):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_local_batches_share_the_memory(ranks):
    """With t = 0 the loss does not depend on the mean positive score."""
    sizes, results = ranks
    setting = dict(loss={**STABLE_AP, 't': 0.0}, memory=dict(size=40, dim=DIM))
    whole = _Model(**setting)
    x, labels, ids = _data(0, sizes)
    whole(x, samples(labels, ids))
    for rank, result in enumerate(results):
        alone = _Model(**setting)
        alone.head.load_state_dict(whole.head.state_dict())
        x, labels, ids = (v[_part(rank, sizes)] for v in _data(1, sizes))
        expected = alone(x, samples(labels, ids)).detach()
        torch.testing.assert_close(result[-1][0], expected)
    x, labels, ids = _data(1, sizes)
    whole(x, samples(labels, ids))
    entries = whole.head.memory.entries()
    for result in results:
        got = result[-1][1:]
        torch.testing.assert_close(got[0], entries.embeddings)
        assert torch.equal(got[1], entries.labels)
        assert torch.equal(got[2], entries.sample_ids)
