"""Every registered point-wise loss: an entry of weight w counts as w entries."""

import pytest
import torch
from gloo_processes import run_on_ranks
from registered_losses import CLASSES, POINTWISE, box_argument, cases

from mmrank.testing.calls import total

CASES = cases(*POINTWISE)
every_case = pytest.mark.parametrize('case', CASES, ids=str)
CLOSE = dict(rtol=1e-12, atol=1e-12)
#: Of each row; 0 is absent.
COUNTS = torch.tensor([1.0, 3, 0, 2, 1, 1, 2, 0, 1, 3, 1, 2], dtype=torch.float64)
THIRDS = COUNTS / 3


def build(case):
    """LDAM with the weights of its classes, so that the shares of the rows differ."""
    loss = case.build()
    if hasattr(loss, 'start_reweighting'):
        loss.start_reweighting()
    return loss


def by_sigmoid(case):
    return getattr(case.details, 'use_sigmoid', True)


def call(loss, batch, weight=None):
    """The loss of rows, with the values of all their boxes."""
    *boxes, labels, idx = batch.leaves[1:] + batch.fixed
    options = {}
    if key := box_argument(loss):
        options[key] = boxes[0]
    if getattr(loss, 'keeps_samples', False):
        options['sample_idx'] = idx
    return total(loss(batch.leaves[0], labels, weight, **options))


def step(loss, batch, weight=None):
    """Value and gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in batch.leaves]
    value = call(loss, batch.with_leaves(leaves), weight)
    return value.detach(), *torch.autograd.grad(value, leaves)


def weights_of(case, of_rows=THIRDS):
    """(n,) weights and, where the loss has them, (n, C)."""
    g = torch.Generator().manual_seed(0)
    of_entries = torch.randint(0, 4, (12, CLASSES), generator=g).double() * of_rows.max() / 3
    return [of_rows, of_entries] if by_sigmoid(case) else [of_rows]


@every_case
def test_whole_weights_equal_copies(case):
    index = torch.arange(12).repeat_interleave(3)
    for counts in weights_of(case, COUNTS):
        value, gradient = step(build(case), case.batch(), counts)
        # The copies that are too many are left out.
        is_there = torch.arange(36) % 3 < counts[index].t()
        expected, of_copies = step(build(case), case.batch().entries(index), is_there.t())
        summed = torch.zeros_like(gradient).index_add(0, index, of_copies)
        torch.testing.assert_close((value, gradient), (expected, summed), **CLOSE)


def broken_rows(batch, is_absent):
    """NaN and a label of -100 in some rows."""
    *boxes, labels, idx = batch.fixed
    batch = batch.mapped(
        lambda x: x.masked_fill(is_absent.view(-1, *[1] * (x.dim() - 1)), torch.nan)
    )
    return batch.with_fixed([*boxes, labels.masked_fill(is_absent, -100), idx])


@pytest.mark.parametrize('case', [x for x in cases() if x.kind == 'rows'], ids=str)
def test_ignored_rows_are_absent(case):
    """Of every loss of scores, as the refusal of ``ignore_index`` says it."""
    kept = COUNTS > 0
    expected, *of_kept = step(build(case), case.batch().entries(kept))
    batch = broken_rows(case.batch(), ~kept)
    value, *gradients = step(build(case), batch, batch.fixed[-2] != -100)
    torch.testing.assert_close(value, expected, **CLOSE)
    for found, other in zip(gradients, of_kept):
        torch.testing.assert_close(found[kept], other, **CLOSE)
        assert not found[~kept].any()


@every_case
def test_weight_0_is_absence(case):
    kept = COUNTS > 0
    value, gradient = step(build(case), case.batch().entries(kept), COUNTS[kept])
    found, of_all = step(build(case), broken_rows(case.batch(), ~kept), COUNTS)
    expected = torch.zeros_like(of_all)
    expected[kept] = gradient
    torch.testing.assert_close((found, of_all), (value, expected), **CLOSE)
    if by_sigmoid(case):
        batch, weight = case.batch(), torch.ones(12, CLASSES)
        weight[3, 1] = weight[5] = 0
        one_hot = torch.nn.functional.one_hot(batch.fixed[-2], CLASSES + 1)[:, :CLASSES]
        loss = build(case)
        loss.box_input = None
        expected = step(loss, batch.with_fixed([one_hot, kept]), weight)
        broken = batch.mapped(lambda x: x.masked_fill(weight == 0, torch.nan))
        unknown = one_hot.masked_fill(weight == 0, -100)
        found = step(loss, broken.with_fixed([unknown, kept]), weight)
        torch.testing.assert_close(found, expected, **CLOSE)


@every_case
def test_a_mean_does_not_depend_on_the_scale(case):
    batch, loss = case.batch(), build(case)
    equal = step(loss, batch, torch.full((12,), 0.3))
    torch.testing.assert_close(equal, step(loss, batch), **CLOSE)
    for weight in weights_of(case):
        scaled = step(loss, batch, weight * 0.01)
        torch.testing.assert_close(scaled, step(loss, batch, weight), **CLOSE)


SHARES = [slice(0, 7), slice(7, 12)]


def _on_rank(rank, world):
    found = []
    for case in CASES:
        for weight in weights_of(case):
            batch = case.batch().entries(SHARES[rank])
            value, gradient = step(build(case), batch, weight[SHARES[rank]])
            found += [value, gradient / world]
    return found


@pytest.mark.processes
def test_uneven_ranks_equal_one_process():
    ranks = [iter(x) for x in run_on_ranks(_on_rank, 2, 2)]
    for case in CASES:
        for weight in weights_of(case):
            value, gradient = step(build(case), case.batch(), weight)
            found = [next(rank) for rank in ranks]
            torch.testing.assert_close(found, [value, value], **CLOSE, msg=str(case))
            of_ranks = torch.cat([next(rank) for rank in ranks])
            torch.testing.assert_close(of_ranks, gradient, **CLOSE, msg=str(case))


@every_case
def test_half_precision_is_computed_in_float32(case):
    batch, weight = case.batch().cast(torch.float32), THIRDS.bfloat16()
    batch = batch.mapped(lambda x: x.bfloat16())
    value, gradient = step(build(case), batch, weight)
    expected, of_float = step(build(case), batch.mapped(lambda x: x.float()), weight.float())
    assert (value.dtype, gradient.dtype) == (expected.dtype, torch.bfloat16)
    torch.testing.assert_close((value, gradient), (expected, of_float.bfloat16()))


@every_case
def test_no_value_is_looked_at_on_a_device(case):
    batch = case.batch().mapped(lambda x: x.to('meta'))
    batch = batch.with_fixed([x.to('meta') for x in batch.fixed])
    for weight in weights_of(case):
        assert call(build(case), batch, weight.to('meta')).is_meta


@pytest.mark.processes  # as slow as those
@pytest.mark.parametrize(
    'case',
    [pytest.param(x, marks=[pytest.mark.slow] * (i > 0), id=str(x)) for i, x in enumerate(CASES)],
)
def test_compiled(case):
    torch.compiler.reset()  # it compiles one code a few times alone
    compiled = torch.compile(build(case), backend='eager', fullgraph=True)
    compiled.box_input = case.details.box_input if hasattr(case.details, 'box_input') else None
    for weight in weights_of(case):
        found = step(compiled, case.batch(), weight)
        torch.testing.assert_close(found, step(build(case), case.batch(), weight), **CLOSE)


@every_case
def test_wrong_weights_are_refused(case):
    loss, batch = build(case), case.batch()
    with pytest.raises(ValueError, match='weight must be finite and >= 0.* Fix'):
        step(loss, batch, torch.where(COUNTS == 2, -0.5, 1.0))
    with pytest.raises(ValueError, match=r'weight must have shape \(12,\)'):
        step(loss, batch, COUNTS[:5])
    if not by_sigmoid(case):
        with pytest.raises(ValueError, match=r'one label.*Fix: weight of shape \(12,\)'):
            step(loss, batch, torch.ones(12, CLASSES))
