import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.functional import dr_loss

NEG_LAMBDA = 0.1 / math.log(3.5)


def brute_force(pos, neg, lam_pos=1.0, lam_neg=NEG_LAMBDA):
    """Equation by equation in plain Python floats, on probabilities; nothing to rank is no loss."""
    if not pos and not neg:
        return 0.0

    def weighted(values, lam):
        weights = [math.exp(v / lam) for v in values]
        pairs = zip(weights, values)
        return sum(w * v for w, v in pairs) / sum(weights)

    low = weighted(pos, -lam_pos) if pos else 1.0
    high = weighted(neg, lam_neg) if neg else 0.0
    return 4 / 6 * math.log1p(math.exp(6 * (high - low + 0.5)))


logits = st.floats(-12, 12)


@given(st.lists(logits, max_size=6), st.lists(logits, max_size=9))
def test_equals_brute_force(pos, neg):
    x = torch.tensor(pos + neg, dtype=torch.float64)
    targets = torch.tensor([1] * len(pos) + [0] * len(neg))
    probabilities = x.sigmoid().tolist()
    expected = brute_force(probabilities[: len(pos)], probabilities[len(pos) :])
    assert dr_loss(x, targets).item() == pytest.approx(expected, rel=1e-9)


def test_gradcheck():
    g = torch.Generator().manual_seed(0)
    targets = torch.randint(-1, 2, (3, 9), generator=g)
    targets[1] = 0
    logits = torch.randn(3, 9, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: dr_loss(x, targets, mask=targets >= 0), logits)
