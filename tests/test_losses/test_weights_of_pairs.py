"""Weights of the losses of views and pairs: an entry of weight w counts as w entries."""

from dataclasses import replace

import pytest
import torch
from gloo_processes import run_on_ranks
from subjects import cases, subject_of_case

from mmrank.losses import CLIPLoss, FlatCLRLoss, InBatchLoss, InBatchSoftmaxLoss, VICRegLoss
from mmrank.testing import CHECKS, Call

CASES = [case for case in cases() if case.kind in ('views', 'pairs')]
every_case = pytest.mark.parametrize('case', CASES, ids=str)
#: Both halves have one sum, as sogram takes two samples; there are 12 training pairs.
TIMES = torch.tensor([1.0, 2, 0, 3, 2, 0, 3, 1], dtype=torch.float64)
SHARES = torch.tensor([1.2, 0.7, 0, 2.4, 0.6, 0, 1.5, 1.3], dtype=torch.float64)
#: Means over the negatives and the anchors; to the others more copies are more negatives.
MEANS = ('BarlowTwinsLoss', 'BimodalISogCLRLoss', 'ISogCLRLoss', 'SogCLRLoss')
MEANS += ('SpectralContrastiveLoss',)


def steps(case, weight=None, rows=None, absent=False):
    """Values, gradients and the state of two steps, parameters included."""
    loss = case.build()
    found = []
    for seed in range(2):
        batch = case.batch(size=8, seed=seed)
        leaves = [x.clone().requires_grad_() for x in batch.leaves]
        views, fixed = leaves, batch.fixed
        if rows is not None:
            views, fixed = ([x[rows] for x in part] for part in (views, fixed))
        if absent:
            views = [torch.where(weight[:, None] == 0, torch.nan, x) for x in views]
            fixed = [x.masked_fill(weight == 0, -100) for x in fixed]
        value = loss(*views, *fixed, weight=weight)
        found += [value, *torch.autograd.grad(value, [*leaves, *loss.parameters()])]
    return [x.detach() for x in (*found, *loss.state_dict().values())]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        # Parameters and states are float32.
        close = (1e-12, 1e-12) if one.dtype == torch.float64 else (1e-5, 1e-7)
        torch.testing.assert_close(one, other, rtol=close[0], atol=close[1])


@every_case
def test_integers_are_repeated_entries(case):
    """In value, gradient and state. With weights a pair of a sample may come up again."""
    copies = torch.arange(8).repeat_interleave(TIMES.long())
    expected = steps(case, torch.ones(12, dtype=torch.float64), copies)
    assert_same(steps(case, TIMES), expected)
    if case.name != 'InBatchLoss':
        assert_same(steps(case, None, copies), expected)


@pytest.mark.parametrize('host', [True, False])
@every_case
def test_no_weight_is_absence(case, host, monkeypatch):
    """Whatever the entry and its numbers hold, also where the host does not look at weights."""
    if not host:
        for module in ('tensors', 'losses.two_tower.in_batch', 'losses.two_tower.in_batch_softmax'):
            monkeypatch.setattr(f'mmrank.{module}.can_sync', lambda x: False)
    present = TIMES.nonzero()[:, 0]
    expected = steps(case, SHARES[present], present)
    assert_same(steps(case, SHARES, absent=True), expected)
    assert_same(steps(case, TIMES > 0, absent=True), steps(case, None, present))


@every_case
def test_equal_weights_are_none(case):
    assert_same(steps(case, torch.ones(8)), steps(case))
    if case.name in MEANS or case.settings.get('refined'):
        assert_same(steps(case, torch.full((8,), 2.5)), steps(case))
        assert_same(steps(case, SHARES / 8), steps(case, SHARES))


def weighted(case):
    """The loss as mmrank.testing checks it, with random weights of mean 1."""

    def make(size, seed):
        batch = case.batch(size, seed)
        g = torch.Generator().manual_seed(seed)
        weight = torch.rand(size, generator=g, dtype=torch.float64).sub(0.2).clamp(min=0)
        return batch.leaves, (*batch.fixed, weight / weight.mean())

    def apply(loss, *tensors):
        return loss(*tensors[:-1], weight=tensors[-1])

    return replace(subject_of_case(case), call=Call(case.kind, make, apply))


@pytest.mark.parametrize('name', ['bfloat16', 'autocast', 'state_dict', 'meta'])
@every_case
def test_promises(case, name):
    """A GPU does not wait (meta), a state resumes to the bit, bfloat16 is near float64."""
    assert CHECKS[name](weighted(case)).outcome == 'passed'


@pytest.mark.slow
@pytest.mark.parametrize('case', {x.name: x for x in reversed(CASES)}.values(), ids=str)
def test_compiled(case):
    assert CHECKS['compile'](weighted(case)).outcome == 'passed'


PARTS = [slice(0, 5), slice(5, 8)]
#: Of a sogram each rank has two samples.
RANKED = [case for case in CASES if case.settings.get('mode') != 'sogram']


def on_rank(rank, world):
    """By itself, and a rank without weights: test_losses_on_ranks.py."""
    part = PARTS[rank]
    return [steps(case, SHARES[part], part, absent=True) for case in RANKED]


@pytest.mark.processes
def test_uneven_ranks_equal_one_process():
    ranks = run_on_ranks(on_rank, 2, 2)
    expected = [steps(case, SHARES, absent=True) for case in RANKED]
    for wanted, *found in zip(expected, *ranks):
        # A rank has a part of each gradient, twice: DistributedDataParallel averages.
        mean = [sum(x) / 2 for x in zip(*found, strict=True)]
        assert_same(mean, wanted)
        assert_same([x for x in found[0] if not x.dim()], [x for x in found[1] if not x.dim()])


@pytest.mark.parametrize('bimodal', [False, True])
def test_an_absent_sample_is_not_the_nearest(bimodal):
    """The exponentials of all others would be 0 in float32."""
    rows = torch.tensor([[1.0, 0], [-1, 0], [torch.nan, 0]])
    loss = FlatCLRLoss(tau=0.005, bimodal=bimodal)
    found = loss(rows, rows, weight=torch.tensor([1.0, 1, 0]))
    torch.testing.assert_close(found, loss(rows[:2], rows[:2]))
    assert found < -300


@pytest.mark.parametrize('case', cases('InBatchSoftmaxLoss'), ids=str)
def test_candidates_are_repeated(case):
    """Candidates of no pair have weights as well, and change the share of the pairs."""
    left, right = case.batch(size=8).leaves
    rows, cols = case.batch(size=8).fixed
    rows, places = rows[:5], torch.arange(8).repeat_interleave(TIMES.long())
    pairs = places[places < 5]
    found = case.build()(left[:5], right, rows, cols, weight=TIMES)
    expected = case.build()(left[pairs], right[places], rows[pairs], cols[places])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_all_absent():
    """Nothing is learnt of a batch without weight; a sum of pairs has no meaning then."""
    for loss in (CLIPLoss(), VICRegLoss(), InBatchSoftmaxLoss(frequency='none')):
        rows = torch.full((4, 3), torch.nan, requires_grad=True)
        ids = [torch.arange(4)] * 2 if isinstance(loss, InBatchSoftmaxLoss) else []
        value = loss(rows, rows, *ids, weight=torch.zeros(4))
        value.backward()
        assert value == 0
        assert not rows.grad.any()


@every_case
def test_wrong_weights_are_refused(case):
    batch = case.batch(size=8)
    tensors = *batch.leaves, *batch.fixed
    weight = torch.ones(8)
    with pytest.raises(ValueError, match='weight must have shape .8,., got .7,.. Fix'):
        case.build()(*tensors, weight=weight[:7])
    weight[3] = -1
    with pytest.raises(ValueError, match='weight .*Fix'):
        case.build()(*tensors, weight=weight)


def test_sums_of_weights_that_are_no_number_of_pairs():
    rows = torch.arange(4)
    loss = InBatchLoss()
    loss.set_pairs(rows, rows, (4, 4))
    for total, words in ((5, 'above 1 on average'), (1, 'at least 2 pairs'), (0.5, 'at least one')):
        with pytest.raises(ValueError, match=words):
            loss(torch.eye(4), torch.eye(4), rows, rows, weight=torch.full((4,), total / 4))
    with pytest.raises(ValueError, match=r'more than 1. Fix: weight / weight.mean\(\)'):
        VICRegLoss()(torch.eye(4), torch.eye(4), weight=torch.full((4,), 0.25))
