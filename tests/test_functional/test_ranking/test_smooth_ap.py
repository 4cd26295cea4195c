"""SmoothAP against the double loop of its definition."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined

from mmrank.functional import average_precision, smooth_ap_loss

scores = st.lists(st.one_of(st.sampled_from([0.0, 0.5, -0.5]), st.floats(-1, 1)), max_size=6)


def brute_force(pos, neg, tau):
    """Eqs. 5 to 7 of the paper, entry by entry."""

    def sigmoid(x):
        return 1 / (1 + math.exp(-x / tau)) if x > -600 * tau else 0.0

    if not pos:
        return 0.0
    total = 0.0
    for i, s in enumerate(pos):
        among = 1 + sum(sigmoid(x - s) for k, x in enumerate(pos) if k != i)
        total += among / (among + sum(sigmoid(t - s) for t in neg))
    return 1 - total / len(pos)


@given(scores, scores, st.sampled_from([0.01, 0.1, 1.0]))
def test_any_list(pos, neg, tau):
    got = smooth_ap_loss(
        torch.tensor(pos + neg, dtype=torch.float64),
        torch.arange(len(pos) + len(neg)) < len(pos),
        tau=tau,
    )
    assert got.item() == pytest.approx(brute_force(pos, neg, tau), abs=1e-12)


def test_gradient_of_ties():
    """Positives that tie, and one that ties with a negative."""
    tied = torch.tensor([0.2, 0.2, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda p: smooth_ap_loss(*joined(p, torch.tensor([0.5]).double()), tau=0.2),
        tied.requires_grad_(),
    )


def test_a_small_temperature_gives_average_precision():
    g = torch.Generator().manual_seed(1)
    values = torch.randperm(60, generator=g).double()
    positive = torch.rand(60, generator=g) < 0.3
    loss = smooth_ap_loss(values, positive, tau=0.01)
    torch.testing.assert_close(1 - loss, average_precision(values, positive))
