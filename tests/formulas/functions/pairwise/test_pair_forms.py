"""The forms of a sum over pairs give the same, with masks."""

from contextlib import contextmanager
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import summed_by

from mmrank.losses import pairs, pairs_smooth
from mmrank.losses.pairs import OneSidedHuber
from mmrank.losses.pairs_smooth import pairwise_surrogate_sum

INF, NAN = torch.inf, torch.nan
#: Ties, scores at the margin, beyond the limit, and of no use.
SCORES = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, -0.5, 1e-30, 1e4, -1e4, 3e4, INF, -INF, NAN]),
    st.floats(-3, 3, width=16),
)


@st.composite
def batches(draw):
    """Positives, their mask, negatives, and their mask or None."""
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
    neg_mask = rows(num_neg, st.booleans()).bool() if draw(st.booleans()) else None
    return pos, pos_mask, neg, neg_mask


def run(pos, pos_mask, neg, neg_mask, surrogate):
    """Sums, and both gradients of their weighted sum."""
    pos = pos.clone().requires_grad_()
    neg = neg.clone().requires_grad_()
    total = pairwise_surrogate_sum(pos, neg, surrogate, pos_mask=pos_mask, neg_mask=neg_mask)
    up = torch.arange(1.0, 1 + total.numel()).view(total.shape) / 8
    total.backward(up.double())
    return total.detach(), pos.grad, neg.grad


@contextmanager
def on_the_path_of_a_device(block):
    on_device = mock.patch.object(pairs_smooth, 'can_sync', return_value=False)
    with on_device, mock.patch.object(pairs, '_BLOCK', block):
        yield


@given(batches(), st.sampled_from([0.01, 0.5, 1.0]), st.booleans())
def test_the_fast_form_is_the_plain_one(batch, tau, has_grid):
    sizes = dict(_GRID_SCORES=1 if has_grid else 2**13, _CACHED_BLOCK=7, _LEAST_CELLS=4)
    with mock.patch.multiple(pairs, **sizes), summed_by('intervals'):
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
