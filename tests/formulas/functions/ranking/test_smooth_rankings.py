"""Ranking functions against loops over any list, and the mixtures of recall at k."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from score_lists import joined, plain_huber, summed_by
from subjects import made_up
from torch.nn.functional import normalize

from mmrank.functional import (
    auc_loss,
    blackbox_ap_loss,
    listwise_ap_loss,
    recall_at_k_loss,
    smooth_ap_loss,
    soprc_loss,
    stable_ap_loss,
)
from mmrank.losses import EmbeddingBatch, EmbeddingLoss, RecallAtKLoss
from mmrank.losses.retrieval.recall_at_k import _with_mixtures

SOME = [0.0, 0.5, -0.5, 1.0, -1.0, 1.5]
score = st.one_of(st.sampled_from(SOME), st.floats(-1.2, 1.2), st.floats(-20, 20))
scores = st.lists(score, max_size=9)
TAUS = [0.01, 0.1, 1.0]
BINS = [2, 3, 5, 20]
RANGES = [(-1.0, 1.0), (0.0, 1.0), (-1.2, 0.7)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -600 else 0.0


def smooth_ap_by_loops(pos, neg, tau):
    """Eqs. 5 to 7 of the paper, entry by entry."""
    if not pos:
        return 0.0
    total = 0.0
    for i, s in enumerate(pos):
        among = 1 + sum(sigmoid((x - s) / tau) for k, x in enumerate(pos) if k != i)
        total += among / (among + sum(sigmoid((t - s) / tau) for t in neg))
    return 1 - total / len(pos)


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
@example([(0.23, True), (0.0, False)], 1.0, 0.25)  # ranked right, but not by the margin
def test_any_list_of_blackbox_ap(entries, lam, margin):
    values = [float(x) for x, _ in entries]
    positive = [bool(p) for _, p in entries]
    leaf = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    is_positive = torch.tensor(positive, dtype=torch.bool)
    loss = blackbox_ap_loss(leaf[None], is_positive[None], lam=lam, margin=margin)[0]
    loss.backward()
    expected, grad = 0.0, [0.0] * len(values)
    if any(positive):
        lower = [x - margin * (y - 0.5) for x, y in zip(values, positive)]
        expected, grad = by_counting(lower, positive, lam)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(leaf.grad, torch.tensor(grad, dtype=torch.float64))


def listwise_by_loops(pos, neg, num_bins, score_range):
    """Eqs. 5 to 8 of the paper with a kernel for every bin."""
    low, high = score_range
    if not pos:
        return 0.0
    width = (high - low) / (num_bins - 1)
    precision = recall = 0.0
    above_pos = above = 0.0
    total = 0.0
    for m in range(num_bins):
        centre = high - m * width

        def share(x, centre=centre):
            x = min(max(x, low), high)
            return max(1 - abs(x - centre) / width, 0.0)

        own = sum(share(x) for x in pos)
        above_pos += own
        above += own + sum(share(x) for x in neg)
        precision = above_pos / above if above else 0.0
        recall = own / len(pos)
        total += precision * recall
    return 1 - total


def recall_by_loops(pos, neg, ks, tau):
    """Eqs. 4 to 6 of the paper, entry by entry, with the limit and normaliser of the code."""
    if not pos:
        return 0.0
    total = 0.0
    for k in ks:
        found = 0.0
        for i, s in enumerate(pos):
            others = [x for j, x in enumerate(pos) if j != i] + neg
            found += sigmoid(k - 1 - sum(sigmoid((x - s) / tau) for x in others))
        total += min(found, k) / min(k, len(pos))
    return 1 - total / len(ks)


SURROGATES = {'sigmoid': lambda x, tau: sigmoid(-x / tau), 'one_sided_huber': plain_huber}


def auc_by_loops(pos, neg, surrogate, tau):
    pairs = [SURROGATES[surrogate](s - t, tau) for s in pos for t in neg]
    return sum(pairs) / len(pairs) if pairs else 0.0


def stable_ap_by_loops(
    pos, neg, mean_pos, *, tau, bound, a, t, eps, rho=None, weights='normalised'
):
    """Formula by formula in plain Python floats."""
    if not pos:
        return 0.0
    total, total_weight = 0.0, 0.0
    for s in pos:
        rank = min(max(plain_huber(s - mean_pos, tau) / bound, 0.0), 1.0)
        weight = ((1 + a) / (rank + a)) ** t
        total += weight * sum(plain_huber(s - n, tau) for n in neg)
        total_weight += weight
    if weights == 'normalised':
        total /= total_weight / len(pos)
    pairs = len(pos) * max(len(neg), 1)
    rho = len(neg) / len(pos) if rho is None else rho
    x = rho * total / pairs
    return math.sqrt(eps**2 + x / (1 + x))


def soprc_by_loops(pos, neg, v, *, prior, tau1, tau2):
    """Equation 8 in plain Python floats."""
    if not pos:
        return 0.0
    v = v.tolist()
    if prior is None:
        prior = len(pos) / (len(pos) + len(neg))
    total = 0.0
    for s in pos:
        above = sum(plain_huber(s - t, tau1) for t in neg) / max(len(neg), 1)
        share = (1 + sum(math.tanh((x - s) / (2 * tau2)) for x in v if x > s)) / (len(v) + 1)
        x = (1 - prior) / prior * above / share
        total += x / (1 + x)
    return total / len(pos)


#: A function, its loops, and settings.
FUNCTIONS = {
    'smooth AP': (smooth_ap_loss, smooth_ap_by_loops, dict(tau=TAUS)),
    'list-wise AP': (listwise_ap_loss, listwise_by_loops, dict(num_bins=BINS, score_range=RANGES)),
    'recall at k': (recall_at_k_loss, recall_by_loops, dict(ks=[(1, 2, 4), (3,)], tau=TAUS)),
    'AUC': (auc_loss, auc_by_loops, dict(surrogate=[*SURROGATES], tau=[0.1, 1.0])),
    'stable AP': (
        stable_ap_loss,
        stable_ap_by_loops,
        dict(
            mean_pos=score,
            rho=[None, 1.0, 30.0],
            weights=['normalised', 'printed'],
            **dict(tau=[0.7], bound=[15.0], a=[0.1], t=[2.0], eps=[0.1]),
        ),
    ),
    'SOPRC': (
        soprc_loss,
        soprc_by_loops,
        dict(
            v=st.lists(score, min_size=1, max_size=9).map(torch.DoubleTensor),
            prior=[None, 0.5, 0.003],
            **dict(tau1=[0.7], tau2=[0.2]),
        ),
    ),
}


@pytest.mark.parametrize('name', FUNCTIONS)
@given(st.data(), scores, scores, st.sampled_from(['auto', 'intervals', 'pairs']))
def test_any_list(name, data, pos, neg, method):
    loss, by_loops, choices = FUNCTIONS[name]
    settings = {
        key: data.draw(st.sampled_from(x) if isinstance(x, list) else x)
        for key, x in choices.items()
    }
    entries = torch.tensor(pos + neg, dtype=torch.float64)
    with summed_by(method):
        got = loss(entries, torch.arange(len(entries)) < len(pos), **settings)
    assert got.item() == pytest.approx(by_loops(pos, neg, **settings), rel=1e-9, abs=1e-9)


def test_the_mean_positive_of_stable_ap_is_a_constant():
    """And positives are pushed up; the value of the gradient: test_graded_losses.py."""
    pos, mean = torch.linspace(-2, 2, 6).requires_grad_(), torch.tensor(0.3, requires_grad=True)
    loss = stable_ap_loss(*joined(pos, made_up(40)), mean, tau=0.7, bound=15.0)
    by_pos, by_mean = torch.autograd.grad(loss, (pos, mean), allow_unused=True)
    assert by_mean is None
    assert (by_pos <= 0).all()


def test_mixtures_are_queries_and_in_the_gallery():
    x, labels = normalize(made_up(9, 3).double()), torch.arange(9) // 3
    labels[-1] = 7  # pairs of the classes: 3, 3 and 1
    itself = torch.eye(9, dtype=torch.bool)
    empty = torch.ones(9, 2, dtype=torch.bool)  # slots of a memory without an entry
    gallery, classes = torch.cat([x, x[:2]]), torch.cat([labels, labels[:2]])
    batch = EmbeddingBatch(x, labels, gallery, classes, torch.cat([itself, empty], 1))
    torch.manual_seed(0)
    mixed = _with_mixtures(batch)
    torch.manual_seed(0)
    share = torch.rand(7, 1, dtype=torch.float64)
    first, second = torch.tensor([0, 0, 1, 3, 3, 4, 6]), torch.tensor([1, 2, 2, 4, 5, 5, 7])
    rows = share * x[first] + (1 - share) * x[second]
    torch.testing.assert_close(mixed.queries, torch.cat([x, rows]))
    torch.testing.assert_close(mixed.gallery, torch.cat([gallery, rows]))
    assert mixed.query_labels[9:].tolist() == labels[first].tolist()
    assert mixed.gallery_labels[11:].tolist() == labels[first].tolist()
    # A mixture searches for both of its images, but not for itself or for nothing.
    assert mixed.is_itself[9:, :9].sum() == 0
    assert mixed.is_itself[:, 9:11].all()
    assert torch.equal(mixed.is_itself[:9], torch.cat([batch.is_itself, empty.new_zeros(9, 7)], 1))
    assert torch.equal(mixed.is_itself[9:, 11:], torch.eye(7, dtype=torch.bool))


def test_mixtures_are_of_training_and_of_embeddings():
    x, labels = made_up(24, 6), torch.arange(24) // 4
    loss, plain = EmbeddingLoss(RecallAtKLoss(mixup=True)), EmbeddingLoss(RecallAtKLoss())
    assert loss(x, labels) != plain(x, labels)
    assert loss.eval()(x, labels) == plain(x, labels)
