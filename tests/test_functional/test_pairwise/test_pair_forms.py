"""The forms of a sum over pairs give the same, with masks and with weights of the negatives."""

from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import summed_by

from mmrank.losses import pairs, pairs_fast, pairs_smooth
from mmrank.losses.pairs import pairwise_surrogate_sum
from mmrank.losses.pairs_smooth import OneSidedHuber, OneSidedSigmoid, Sigmoid, SquaredHinge

INF, NAN = torch.inf, torch.nan
#: Ties, scores at the margin, beyond the limit, and of no use.
SCORES = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, -0.5, 1e-30, 1e4, -1e4, 3e4, INF, -INF, NAN]),
    st.floats(-3, 3, width=16),
)
#: A sum of nothing, of zero, parts and several entries.
WEIGHTS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.5, 7.0])


@st.composite
def batches(draw):
    """Positives, their mask, negatives, and their weights: None, bool or floats."""
    lists = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from([torch.float16, torch.float32, torch.float64]))

    def rows(width, values):
        lines = draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=lists,
                              max_size=lists))  # fmt: skip
        return torch.tensor(lines).view(lists, width)

    num_pos = draw(st.integers(0, 5))
    num_neg = draw(st.integers(0, 25))
    pos = rows(num_pos, SCORES).to(dtype)
    neg = rows(num_neg, SCORES).to(dtype)
    pos_mask = rows(num_pos, st.booleans()).bool()
    kind = draw(st.sampled_from(['none', 'bool', 'floats']))
    weight = None if kind == 'none' else rows(num_neg, WEIGHTS)
    return pos, pos_mask, neg, weight != 0 if kind == 'bool' else weight


def run(pos, pos_mask, neg, weight, surrogate):
    """Sums, and both gradients of their weighted sum."""
    pos = pos.clone().requires_grad_()
    neg = neg.clone().requires_grad_()
    total = pairwise_surrogate_sum(pos, neg, surrogate, pos_mask=pos_mask, neg_mask=weight)
    up = torch.arange(1.0, 1 + total.numel()).view(total.shape) / 8
    total.backward(up.double())
    return total.detach(), pos.grad, neg.grad


@contextmanager
def on_the_path_of_a_device(block):
    with (
        mock.patch.multiple(pairs_fast, can_sync=lambda x: False, _BLOCK=block),
        mock.patch.object(pairs, 'can_sync', return_value=False),
    ):
        yield


@given(batches(), st.sampled_from([0.01, 0.5, 1.0]), st.booleans())
def test_the_fast_form_is_the_plain_one(batch, tau, has_grid):
    sizes = dict(_GRID_SCORES=1 if has_grid else 2**13, _CACHED_BLOCK=7, _LEAST_CELLS=4)
    with mock.patch.multiple(pairs_fast, **sizes), summed_by('intervals'):
        fast = run(*batch, OneSidedHuber(tau))
    with on_the_path_of_a_device(20), summed_by('intervals'):
        plain = run(*batch, OneSidedHuber(tau))
    half = batch[0].dtype == torch.float16
    for a, b in zip(fast, plain):
        # Anchors that are all at the centre cost two digits.
        torch.testing.assert_close(
            a, b, rtol=1e-3 if half else 1e-6 if a.dtype == torch.float32 else 1e-9,
            atol=1e-3 if half else 1e-6 if a.dtype == torch.float32 else 1e-9, equal_nan=True,
        )  # fmt: skip


def _lists(seed, lists=3, num_pos=7, num_neg=40):
    g = torch.Generator().manual_seed(seed)
    pos = torch.randn(lists, num_pos, generator=g).double().round(decimals=1)
    neg = torch.randn(lists, num_neg, generator=g).double().round(decimals=1)
    pos_mask = torch.rand(lists, num_pos, generator=g) < 0.7
    weight = torch.randint(0, 4, neg.shape, generator=g)
    return pos, pos_mask, neg, weight


FORMS = ['plain', 'fast', 'fast with a grid', 'matrix', 'matrix in blocks', 'matrix by lengths']


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    name = request.param
    if name == 'plain':
        monkeypatch.setattr(pairs, 'can_sync', lambda x: False)
        monkeypatch.setattr(pairs_fast, 'can_sync', lambda x: False)
    elif name == 'fast with a grid':
        monkeypatch.setattr(pairs_fast, '_GRID_SCORES', 1)
    elif name == 'matrix in blocks':
        monkeypatch.setattr(pairs_smooth, '_KEPT_BYTES', 0)
        monkeypatch.setattr(pairs_smooth, '_PAIRS_PER_BLOCK', 50)
    elif name == 'matrix by lengths':
        monkeypatch.setattr(pairs_smooth, '_PAIRS_TO_REGROUP', 0)
    with summed_by('pairs' if name.startswith('matrix') else 'intervals'):
        yield name


@pytest.mark.parametrize('kind', [OneSidedHuber, OneSidedSigmoid, Sigmoid, SquaredHinge])
def test_a_whole_weight_is_so_many_equal_entries(form, kind):
    if kind is not OneSidedHuber and not form.startswith('matrix'):
        pytest.skip('the one-sided Huber alone has intervals')
    surrogate = kind(0.4)
    for seed in range(5):
        pos, pos_mask, neg, weight = _lists(seed)
        if seed == 1:
            pos_mask[0] = False
        got = run(
            pos,
            pos_mask,
            torch.where(weight == 0, NAN, neg),
            weight.double() if seed % 2 else weight,
            surrogate,
        )
        times = torch.arange(3).expand(*neg.shape, 3)
        copies = neg.repeat_interleave(3, 1)
        counted = (times < weight[..., None]).flatten(1)
        total, by_pos, by_neg = run(pos, pos_mask, copies, counted, surrogate)
        want = total, by_pos, by_neg.view(*neg.shape, 3).sum(2)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
