"""k-NN and linear evaluation of features."""

import pytest
import torch

from mmrank.evaluation.frozen_feature_metrics import L2, LinearProbe, _accuracies, _count_hits
from mmrank.functional import k_nearest_votes, unit_rows
from mmrank.registry import METRICS

CLASSES = ('cat', 'dog', 'fox')


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=g)
    centres = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    return centres[labels] + torch.randn(n, 6, generator=g), labels


def data_samples():
    bank, queries = blobs(60, 1), blobs(31, 2)
    return [
        dict(feature=row, gt_label=label.view(1), dataset_idx=part)
        for part, (rows, labels) in enumerate((bank, queries))
        for row, label in zip(rows, labels)
    ]


def evaluated(samples, **config):
    metric = METRICS.build(dict(device='cpu', **config))
    metric.dataset_meta = dict(classes=CLASSES)
    for start in range(0, len(samples), 16):
        metric.process({}, samples[start : start + 16])
    return metric.evaluate(len(samples))


def test_knn_is_the_vote():
    (bank, labels), (queries, true) = blobs(60, 1), blobs(31, 2)
    figures = evaluated(data_samples(), type='mmrank.KNNMetric', k=9, tau=0.1, per_class=True)
    votes = k_nearest_votes(unit_rows(queries), unit_rows(bank), labels, 3, 9, 0.1)
    right = votes.argmax(1) == true
    assert figures['knn/accuracy'] == pytest.approx(100 * right.double().mean())
    shares = [100 * right[true == c].double().mean() for c in range(3)]
    for name, share in zip(CLASSES, shares):
        assert figures[f'knn/accuracy/{name}'] == pytest.approx(share)
    assert figures['knn/mean_class_accuracy'] == pytest.approx(sum(shares) / 3)
    assert 40 < figures['knn/accuracy'] < 100


def test_linear_probe_metric():
    (bank, labels), (queries, true) = blobs(60, 1), blobs(31, 2)
    figures = evaluated(data_samples(), type='mmrank.LinearProbeMetric')
    predicted = LinearProbe(bank, labels, 3)(queries).argmax(1)
    expected = 100 * (predicted == true).double().mean()
    assert figures['linear/accuracy'] == pytest.approx(expected)
    assert set(figures) == {'linear/accuracy', 'linear/mean_class_accuracy'}


def test_probe_equals_scikit_learn():
    linear_model = pytest.importorskip('sklearn.linear_model')
    x, y = blobs(150, 3)
    probe = LinearProbe(x, y, 3)
    z = (x.double() - probe.mean) * probe.scale
    other = linear_model.LogisticRegression(C=1 / (L2 * len(y)), tol=1e-9, max_iter=1000).fit(
        z.numpy(), y.numpy()
    )
    chances = torch.from_numpy(other.predict_proba(z.numpy()))
    torch.testing.assert_close(probe(x).softmax(1), chances, rtol=0, atol=1e-3)
    assert probe.iterations < 100


@torch.no_grad()  # probing needs no gradient mode
def test_probe_of_odd_features():
    x, y = blobs(40, 3)
    x = torch.cat([1e6 * x, torch.full((40, 1), 3.0)], 1).half().float()
    x = torch.nan_to_num(x, posinf=6e4, neginf=-6e4)
    probe = LinearProbe(x, y, 5)
    assert probe.weight.any()
    logits = probe(x)
    assert logits.isfinite().all()
    # Classes 3 and 4 are never seen.
    assert logits.argmax(1).max() < 3
    # One class: no other is likely.
    assert LinearProbe(x, torch.ones_like(y), 2)(x).argmax(1).all()


def test_accuracies_of_classes_without_samples():
    hits = _count_hits(torch.tensor([0, 0, 2]), torch.tensor([0, 2, 2]), 4)
    assert hits.tolist() == [[1, 0, 1, 0], [1, 0, 2, 0]]
    figures = _accuracies(hits, None, True)
    assert figures == pytest.approx(
        {'accuracy': 200 / 3, 'mean_class_accuracy': 75.0, 'accuracy/0': 100.0, 'accuracy/2': 50.0}
    )


@pytest.mark.parametrize(('part', 'message'), [(1, '0 samples of the bank'), (0, 'and 0 queries')])
def test_a_bank_and_queries_are_required(part, message):
    samples = [{**sample, 'dataset_idx': part} for sample in data_samples()]
    with pytest.raises(ValueError, match=message):
        evaluated(samples, type='mmrank.KNNMetric')
