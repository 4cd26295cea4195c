"""Two or three gloo processes give what one process gives.

Starting processes costs most of the time, so they run all cases.
"""

import importlib.util

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks
from mmengine.registry import MODELS
from small_retriever import CLASSES, DIM, SOPRC, STABLE_AP, build_head, samples
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import EmbeddingLoss
from mmrank.state import MeanPositiveScore

STEPS = 3
SIZES = {2: (7, 4), 3: (5, 0, 6)}
CASES = [
    dict(loss=STABLE_AP),
    dict(loss=dict(STABLE_AP, rho='auto'), memory=dict(size=14, dim=DIM)),
    dict(
        loss=dict(STABLE_AP, rho='auto', mean_scope='global'),
        memory=dict(size=23, dim=DIM, start_iter=1),
        copies=2,
    ),
    dict(loss=SOPRC, memory=dict(size=30, dim=DIM)),
    dict(
        loss=dict(
            type='mmrank.SumLoss',
            losses=[STABLE_AP, dict(type='mmrank.AUCLoss')],
            weights=[1.0, 0.5],
        ),
        memory=dict(size=14, dim=DIM),
    ),
    dict(loss=dict(type='mmrank.APLoss', delta=0.3), memory=dict(size=8, dim=DIM)),
]
RIVALS = [
    dict(type='mmrank.SmoothAPLoss', tau=0.2),
    dict(type='mmrank.ListwiseAPLoss', num_bins=11),
    dict(type='mmrank.BlackBoxAPLoss', lam=2.0, margin=0.1),
    dict(type='mmrank.AUCLoss', tau=0.3),
    dict(type='mmrank.AUCLoss', surrogate='one_sided_huber', tau=0.5),
    dict(type='mmrank.RecallAtKLoss', ks=(1, 3), tau=0.2),
    dict(type='mmrank.HAPLoss', tau=0.2),
    dict(type='mmrank.NDCGLoss', tau=0.2),
    # The first rank draws the mixtures.
    dict(type='mmrank.RecallAtKLoss', ks=[1, 2], tau=0.2, mixup=True),
]
if importlib.util.find_spec('pytorch_metric_learning'):
    miner = dict(type='MultiSimilarityMiner', epsilon=0.5)
    RIVALS += [
        dict(type='mmrank.PMLLoss', **given)
        for given in (
            dict(loss=dict(type='ContrastiveLoss')),
            dict(loss=dict(type='TripletMarginLoss', margin=0.4)),
            dict(loss=dict(type='MultiSimilarityLoss', beta=10), miner=miner),
            dict(loss=dict(type='FastAPLoss', num_bins=8)),
            dict(loss=dict(type='MarginLoss', learn_beta=True, nu=0.01)),
        )
    ]
CASES += [dict(loss=loss, memory=dict(size=21, dim=DIM)) for loss in RIVALS]
CASES += [dict(loss=loss, levels=True) for loss in RIVALS]
CASES += [dict(loss=loss, has_head=False) for loss in (RIVALS[0], dict(type='mmrank.StableAPLoss'))]


class _Model(nn.Module):
    def __init__(self, loss, copies=1, levels=False, has_head=True, **kwargs):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, DIM).double()
        self.copies = copies
        self.levels = levels
        head = build_head(loss, **kwargs) if has_head else EmbeddingLoss(MODELS.build(loss))
        self.head = head.double() if loss in RIVALS else head

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
    means = _means(_part(rank, sizes), dist.group.WORLD)
    return [
        loss,
        entries.embeddings,
        entries.labels,
        entries.sample_ids,
        *means.state_dict().values(),
    ]


def _rival_locally(loss, rank, sizes):
    """Loss and gradients of a rank that looks at its own batch alone."""
    model = _Model(dict(loss, scope='local'))
    x, labels, ids = (v[_part(rank, sizes)] for v in _data(0, sizes))
    value = model(x, samples(labels, ids))
    value.backward()
    return [value, model.linear.weight.grad]


def _means(part, group=None):
    """Mean positive scores of the classes after two batches of lists."""
    g = torch.Generator().manual_seed(3)
    rows = torch.tensor([2, 0, 2, 2, 1, 0, 0, 1, 2, 0, 2])
    state = MeanPositiveScore(CLASSES, 0.3)
    for _ in range(2):
        pos = torch.rand(len(rows), 4, generator=g)
        mask = torch.rand(len(rows), 4, generator=g) < 0.5
        state.update(pos[part], mask[part], group, rows[part])
    return state


class _Mixup(nn.Module):
    """With u = 1 the mixed features are copies, so nothing is random."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        net = dict(type='mmrank.SmallConvNet', channels=DIM, num_blocks=1)
        self.net = MODELS.build(
            dict(type='mmrank.DeepFeatureMixup', backbone=net, stages=('blocks',), u=1.0)
        ).double()
        self.head = build_head({**STABLE_AP, 'mean_mode': 'off'})

    def forward(self, x, batch):
        labels = [s['gt_label'] for s in batch]
        labels = torch.cat(labels) if labels else torch.zeros(0)
        with self.net.mixing(labels):
            maps = self.net(x.reshape(-1, 1, 2, 3))[-1]
        return self.head.loss(maps.mean((2, 3)), batch, 2)['loss']


def _mixup(model, part, sizes):
    model.eval()  # batch norm would take the statistics of each rank
    x, labels, ids = (v[part] for v in _data(0, sizes))
    loss = model(x, samples(labels, ids))
    loss.backward()
    return [loss, *(p.grad for p in model.parameters())]


def _all_cases(rank, sizes):
    results, counts = [], []
    for case in CASES:
        model = DistributedDataParallel(_Model(**case))
        results.append(_train(model, sizes, _part(rank, sizes)))
        counts.append(len(results[-1]))
    for loss in RIVALS:
        results.append(_rival_locally(loss, rank, sizes))
        counts.append(len(results[-1]))
    results.append(_local(rank, sizes))
    counts.append(len(results[-1]))
    model = DistributedDataParallel(_Mixup())
    results.append(_mixup(model, _part(rank, sizes), sizes))
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


@pytest.mark.parametrize('case', range(len(RIVALS)))
def test_a_local_batch_is_that_of_one_process(ranks, case):
    sizes, results = ranks
    for rank, result in enumerate(results):
        expected = _rival_locally(RIVALS[case], rank, sizes)
        for a, b in zip(result[len(CASES) + case], expected, strict=True):
            torch.testing.assert_close(a, b.detach())


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
        batch = (v[_part(rank, sizes)] for v in _data(1, sizes))
        x, labels, ids = batch
        expected = alone(x, samples(labels, ids)).detach()
        torch.testing.assert_close(result[-2][0], expected)
    x, labels, ids = _data(1, sizes)
    whole(x, samples(labels, ids))
    entries = whole.head.memory.entries()
    means = _means(slice(None)).state_dict().values()
    for result in results:
        got = result[-2][1:]
        for a, b in zip(got[3:], means):
            torch.testing.assert_close(a, b)
        torch.testing.assert_close(got[0], entries.embeddings)
        assert torch.equal(got[1], entries.labels)
        assert torch.equal(got[2], entries.sample_ids)


def test_mixed_features_of_all_ranks_are_one_batch(ranks):
    sizes, results = ranks
    expected = _mixup(_Mixup(), slice(None), sizes)
    for result in results:
        for a, b in zip(result[-1], expected):
            torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-9)
