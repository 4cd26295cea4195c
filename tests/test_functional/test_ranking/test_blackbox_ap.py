"""BlackBox AP against the rankings of its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.functional import blackbox_ap_loss

lists = st.lists(
    st.tuples(st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-2, 2)), st.booleans()),
    max_size=9,
)


def by_counting(values, positive, lam):
    """Value and gradient with ties counted as above, entry by entry."""

    def place(x):
        among = [sum(x[k] >= x[i] for k in range(len(x)) if positive[k]) for i in range(len(x))]
        rank = []
        for i in range(len(x)):
            if positive[i]:
                others = sum(x[j] >= x[i] for j in range(len(x)) if not positive[j])
                rank.append(among[i] + others)
            else:
                # Of the other negatives there is no change.
                rank.append(sum(x[k] > x[i] for k in range(len(x)) if positive[k]))
        return among, rank

    count = sum(positive)
    among, rank = place(values)
    loss, moved = 0.0, list(values)
    for i, own in enumerate(positive):
        if own:
            loss += (1 - among[i] / rank[i]) / count
            moved[i] += lam * among[i] / rank[i] ** 2 / count
    after = place(moved)[1]
    return loss, [(b - a) / lam for a, b in zip(rank, after)]


# Margins of no rounding: ties stay ties.
@given(lists, st.sampled_from([0.1, 1.0, 8.0]), st.sampled_from([0.0, 1 / 16, 0.25]))
def test_any_list(entries, lam, margin):
    values = [float(x) for x, _ in entries]
    positive = [bool(p) for _, p in entries]
    leaf = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    is_positive = torch.tensor(positive, dtype=torch.bool)
    loss = blackbox_ap_loss(leaf[None], is_positive[None], lam=lam, margin=margin)[0]
    loss.backward()
    lower = [x - margin * (y - 0.5) for x, y in zip(values, positive)]
    expected, grad = by_counting(lower, positive, lam)
    if not any(positive):
        expected, grad = 0.0, [0.0] * len(values)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(leaf.grad, torch.tensor(grad, dtype=torch.float64))
