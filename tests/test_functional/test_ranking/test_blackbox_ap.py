"""BlackBox AP against the rankings of its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import Function

from mmrank.functional import blackbox_ap_loss


def ranks(scores):
    """Rank of every entry, 1 = highest, of a 1-D tensor without ties."""
    out = torch.empty_like(scores)
    for place, index in enumerate(scores.argsort(descending=True).tolist()):
        out[index] = place + 1
    return out


class BlackBoxRank(Function):
    """Ranks of one list, normalised by its length, as the authors rank.

    The perturbation takes the incoming gradient as it is.
    """

    @staticmethod
    def forward(ctx, scores, lam):
        ctx.lam = lam
        rank = ranks(scores) / scores.numel()
        ctx.save_for_backward(scores, rank)
        return rank

    @staticmethod
    def backward(ctx, grad):
        scores, rank = ctx.saved_tensors
        moved = ranks(scores + ctx.lam * grad) / scores.numel()
        return -(rank - moved) / ctx.lam, None


def literal(scores, is_positive, mask, lam, margin):
    """Mean loss of the queries of a batch, list by list."""
    losses = []
    for row, positive, keep in zip(scores, is_positive, mask):
        row, positive = row[keep], positive[keep]
        moved = row - margin * (positive.double() - 0.5)
        rank = BlackBoxRank.apply(moved, lam)[positive]
        among = ranks(-rank.detach()) / row.numel()
        losses.append(1 - (among / rank).mean())
    return torch.stack(losses).mean()


def square_batch(seed=0, classes=5, images=4, dimensions=3):
    """Every image a query against the rest: as many entries as queries."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(images)
    x = torch.randn(len(labels), dimensions, generator=g, dtype=torch.float64)
    x = torch.nn.functional.normalize(x)
    same = labels[:, None] == labels
    return x @ x.t(), same, ~torch.eye(len(labels), dtype=torch.bool)


@pytest.mark.parametrize('lam', [0.3, 1.0, 4.0, 40.0])
@pytest.mark.parametrize('margin', [0.0, 0.02, 0.3])
def test_equals_the_literal_form(lam, margin):
    scores, same, mask = square_batch()
    queries, length = len(scores), len(scores) - 1
    results = []
    for function in (
        # The authors' lambda is ours times Q/n: see the docstring.
        lambda x: literal(x, same, mask, lam * queries / length, margin),
        lambda x: blackbox_ap_loss(x, same, lam=lam, margin=margin, mask=mask).mean(),
    ):
        leaf = scores.clone().requires_grad_()
        loss = function(leaf)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    (value, grad), (got, got_grad) = results
    torch.testing.assert_close(got, value)
    torch.testing.assert_close(got_grad, grad)
    assert grad.abs().sum() > 0


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


@given(lists, st.sampled_from([0.1, 1.0, 8.0]))
def test_any_list(entries, lam):
    values = [float(x) for x, _ in entries]
    positive = [bool(p) for _, p in entries]
    leaf = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    is_positive = torch.tensor(positive, dtype=torch.bool)
    loss = blackbox_ap_loss(leaf[None], is_positive[None], lam=lam, margin=0.0)[0]
    loss.backward()
    expected, grad = by_counting(values, positive, lam)
    if not any(positive):
        expected, grad = 0.0, [0.0] * len(values)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(leaf.grad, torch.tensor(grad, dtype=torch.float64))
