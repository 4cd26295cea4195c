"""Metrics with weights: an entry of weight w counts as w entries, as in scikit-learn."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from mmrank.functional import (
    auroc,
    average_precision,
    graded_average_precision,
    partial_auroc,
    recall_curve,
    retrieval_curves,
)

METRICS = [
    average_precision,
    auroc,
    lambda *x, **weight: partial_auroc(*x, max_fpr=0.4, min_tpr=0.2, **weight),
    lambda scores, labels, **weight: graded_average_precision(scores, labels / 2, **weight),
]
every_metric = pytest.mark.parametrize('metric', METRICS)
CLOSE = dict(rtol=1e-12, atol=1e-12)
#: Scores that tie, labels and weights, 0 among them.
entry = st.tuples(
    st.sampled_from([-2.0, 0.0, 0.25, 1.0]),
    st.booleans(),
    st.sampled_from([0.0, 1.0]) | st.floats(1e-3, 1e3),
)
weighted_lists = st.lists(entry, min_size=1, max_size=30).filter(
    lambda xs: len({label for _, label, weight in xs if weight}) == 2
)


@given(weighted_lists, st.floats(0.05, 1))
def test_equal_to_scikit_learn(entries, max_fpr):
    scores, labels, weight = (torch.tensor(x) for x in zip(*entries))
    arrays = labels.numpy(), scores.double().numpy()
    scores, weight = scores.double(), weight.double()
    own = dict(sample_weight=weight.numpy())
    for found, expected in (
        (average_precision(scores, labels, weight=weight), average_precision_score(*arrays, **own)),
        (auroc(scores, labels, weight=weight), roc_auc_score(*arrays, **own)),
    ):
        assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    if max_fpr < 1:
        # It scales the area from [max_fpr^2 / 2, max_fpr] to [1/2, 1].
        area = partial_auroc(scores, labels, weight=weight, max_fpr=max_fpr)
        scaled = 0.5 * (1 + (area - max_fpr / 2) / (1 - max_fpr / 2))
        expected = roc_auc_score(*arrays, **own, max_fpr=max_fpr)
        assert float(scaled) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def a_list(seed=0, n=40):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, generator=g, dtype=torch.float64).mul(3).round()
    labels = torch.randint(0, 2, (n,), generator=g)
    return scores, labels, torch.randint(0, 4, (n,), generator=g).double()


@every_metric
@pytest.mark.parametrize('seed', range(3))
def test_copies_absence_and_scale(metric, seed):
    scores, labels, counts = a_list(seed)
    copies = metric(*(x.repeat_interleave(counts.long()) for x in (scores, labels)))
    torch.testing.assert_close(metric(scores, labels, weight=counts), copies, **CLOSE)
    torch.testing.assert_close(metric(scores, labels, weight=counts * 0.37), copies, **CLOSE)
    kept = counts > 0
    broken, unknown = scores.masked_fill(~kept, torch.nan), labels.masked_fill(~kept, -100)
    expected = metric(scores[kept], labels[kept])
    torch.testing.assert_close(metric(broken, unknown, weight=unknown != -100), expected, **CLOSE)
    assert metric(scores, labels, weight=0 * counts).isnan() == metric(*a_list(n=0)[:2]).isnan()


def test_queries_count_by_their_weights():
    g = torch.Generator().manual_seed(0)
    queries, labels = torch.randn(12, 4, generator=g), torch.arange(12) % 5
    counts = torch.randint(0, 3, (12,), generator=g)
    gallery = torch.randn(30, 4, generator=g), torch.arange(30) % 4
    found = retrieval_curves(queries, labels, *gallery, points=5)
    copies = torch.arange(12).repeat_interleave(counts)
    expected = retrieval_curves(queries[copies], labels[copies], *gallery, points=5)
    of_copies = expected.figures.summary()
    for scale in (1.0, 0.37):
        weight = counts * scale
        summary = found.figures.summary(weight=weight)
        assert summary['queries'] == int((counts[labels < 4] > 0).sum())
        for name in ('mAP', 'R_precision', 'MAP_at_R', 'recall@1'):
            assert summary[name] == pytest.approx(of_copies[name], rel=1e-12)
        torch.testing.assert_close(found.mean_precision(weight), expected.mean_precision(), **CLOSE)
        recall = recall_curve(found.figures, range(1, 9), weight)
        assert recall == pytest.approx(recall_curve(expected.figures, range(1, 9)), rel=1e-12)
    with pytest.raises(ValueError, match=r'weight must have shape \(12,\)'):
        found.figures.summary(weight=counts[1:].double())
