"""Average precision of classifiers, and metrics on frozen features."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score, roc_curve

from mmrank.evaluation.frozen_feature_metrics import L2, LinearProbe, _accuracies, _count_hits
from mmrank.functional import auroc, k_nearest_votes, ndcg, partial_auroc, unit_rows
from mmrank.registry import METRICS


def data(classes=3, ties=False):
    g = torch.Generator().manual_seed(classes)
    scores = torch.rand(80, classes, generator=g)
    if ties:
        scores = (5 * scores).round() / 5
    target = torch.rand(80, classes, generator=g) < 0.3
    return scores, target


ENTRIES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, -1.0, 2.0, 3.0]), st.booleans()), min_size=2, max_size=12
)


def figures_of(name, samples, classes, **options):
    """What a metric of mmrank makes of samples in two batches or more."""
    metric = METRICS.build(dict(type=f'mmrank.{name}', **options))
    metric.dataset_meta = dict(classes=classes)
    for begin in range(0, len(samples), 32):
        metric.process({}, samples[begin : begin + 32])
    return metric.evaluate(len(samples))


def evaluate(scores, target, classes=None, **options):
    samples = [dict(pred_score=s, gt_score=t.float()) for s, t in zip(scores, target)]
    return figures_of('AveragePrecisionMetric', samples, classes, **options)


@pytest.mark.parametrize('ties', [False, True])
def test_equals_scikit_learn(ties):
    scores, target = data(ties=ties)
    got = evaluate(scores, target, ['a', 'b', 'c'], classwise=True)
    x, y = scores.double().numpy(), target.numpy()
    expected = {
        'mAP': average_precision_score(y, x, average='macro'),
        'micro_AP': average_precision_score(y, x, average='micro'),
        'AUROC': roc_auc_score(y, x, average='macro'),
        'micro_AUROC': roc_auc_score(y, x, average='micro'),
    }
    for i, name in enumerate('abc'):
        expected[f'AP/{name}'] = average_precision_score(y[:, i], x[:, i])
        expected[f'AUROC/{name}'] = roc_auc_score(y[:, i], x[:, i])
    assert set(got) == {f'ranking/{k}' for k in expected}
    for name, value in expected.items():
        assert got[f'ranking/{name}'] == pytest.approx(100 * value, abs=1e-9)


def test_binary():
    scores, target = data(classes=1)
    got = evaluate(scores, target, ['rest', 'cat'], classwise=True)
    x, y = scores[:, 0].double().numpy(), target[:, 0].numpy()
    ap = pytest.approx(100 * average_precision_score(y, x))
    area = pytest.approx(100 * roc_auc_score(y, x))
    assert got == {
        'ranking/AP': ap,
        'ranking/AUROC': area,
        'ranking/AP/cat': ap,
        'ranking/AUROC/cat': area,
    }
    part = evaluate(scores, target, max_fpr=0.1)['ranking/pAUROC']
    expected = partial_auroc(scores[:, 0], target[:, 0], max_fpr=0.1)
    assert part == pytest.approx(100 * expected.item())


@given(ENTRIES, st.sampled_from([0.1, 0.3, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 0.9]))
def test_partial_auroc_of_any_list(entries, max_fpr, min_tpr):
    scores, labels = map(np.array, zip(*entries))
    lists = torch.tensor(scores), torch.tensor(labels)
    got = partial_auroc(*lists, max_fpr=max_fpr, min_tpr=min_tpr)
    if labels.all() or not labels.any():
        assert got.isnan()
        assert auroc(*lists).isnan()
        return
    # The area under the curve that is cut, by its value in the middle of many thin strips.
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    middles = (np.arange(20000) + 0.5) / 20000 * max_fpr
    heights = np.maximum(np.interp(middles, fpr, tpr) - min_tpr, 0)
    assert got.item() == pytest.approx(heights.mean() / (1 - min_tpr), abs=2e-3)


def test_ndcg_of_the_labels_of_a_sample():
    scores, target = data(classes=6)
    labelled = target.any(1)
    assert not labelled.all()  # a sample without a label is left out
    got = evaluate(scores, target, ndcg_at=[1, 3])
    for k in (1, 3):
        expected = ndcg_score(target[labelled].numpy(), scores[labelled].numpy(), k=k)
        assert got[f'ranking/NDCG@{k}'] == pytest.approx(100 * expected)
    # Gains that are no labels, and ties that never help.
    gain = torch.rand(5, 8, generator=torch.Generator().manual_seed(0))
    scores = scores[:40].flatten()[:40].view(5, 8)
    expected = ndcg_score(gain.numpy(), scores.numpy())
    assert ndcg(scores, gain).mean().item() == pytest.approx(expected)
    assert ndcg(scores[0], gain[0], 3) == ndcg(scores[:1], gain[:1], 3)[0]  # one list
    tied = ndcg(torch.ones(1, 4), torch.tensor([[1, 0, 0, 0]]))
    assert tied.item() == pytest.approx(1 / np.log2(5))
    with pytest.raises(ValueError, match='k >= 1'):
        ndcg(scores, gain, 0)


def test_classes_without_a_side():
    scores, target = data()
    target[:, 1] = False
    message = '1 of 3 classes have no positive or no negative.*: b.*skip_empty'
    with pytest.raises(ValueError, match=message):
        evaluate(scores, target, ['a', 'b', 'c'])
    got = evaluate(scores, target, ['a', 'b', 'c'], skip_empty=True)
    keep = [0, 2]
    x, y = scores.double().numpy()[:, keep], target.numpy()[:, keep]
    assert got['ranking/mAP'] == pytest.approx(100 * average_precision_score(y, x, average='macro'))
    assert got['ranking/micro_AUROC'] == pytest.approx(100 * roc_auc_score(y, x, average='micro'))
    with pytest.raises(ValueError, match='3 of 3 classes'):
        evaluate(scores, target & False, skip_empty=True)


def test_table_in_the_log(monkeypatch):
    scores, target = data()
    lines = []
    monkeypatch.setattr(
        'mmrank.evaluation.average_precision_metric.print_log',
        lambda text, **_: lines.extend(text.splitlines()),
    )
    got = evaluate(scores, target, ['a', 'b', 'c'])
    rows = [line.split() for line in lines if line and '--' not in line]
    assert [row[0] for row in rows] == ['class', 'a', 'b', 'c', 'macro', 'micro']
    assert float(rows[4][3]) == pytest.approx(got['ranking/mAP'], abs=0.005)
    assert int(rows[1][1]) == int(target[:, 0].sum())


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


def test_accuracies_are_those_of_the_vote_and_of_the_probe():
    (bank, labels), (queries, true) = blobs(60, 1), blobs(31, 2)
    figures = figures_of('KNNMetric', data_samples(), CLASSES, k=9, tau=0.1, per_class=True)
    votes = k_nearest_votes(unit_rows(queries), unit_rows(bank), labels, 3, 9, 0.1)
    right = votes.argmax(1) == true
    assert figures['knn/accuracy'] == pytest.approx(100 * right.double().mean())
    shares = [100 * right[true == c].double().mean() for c in range(3)]
    for name, share in zip(CLASSES, shares):
        assert figures[f'knn/accuracy/{name}'] == pytest.approx(share)
    assert figures['knn/mean_class_accuracy'] == pytest.approx(sum(shares) / 3)
    assert 40 < figures['knn/accuracy'] < 100
    figures = figures_of('LinearProbeMetric', data_samples(), CLASSES)
    predicted = LinearProbe(bank, labels, 3)(queries).argmax(1)
    expected = 100 * (predicted == true).double().mean()
    assert figures['linear/accuracy'] == pytest.approx(expected)
    for part, message in ((1, '0 samples of the bank'), (0, 'and 0 queries')):
        samples = [{**sample, 'dataset_idx': part} for sample in data_samples()]
        with pytest.raises(ValueError, match=message):
            figures_of('KNNMetric', samples, CLASSES)


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
    expected = {'accuracy': 200 / 3, 'mean_class_accuracy': 75, 'accuracy/0': 100, 'accuracy/2': 50}
    assert _accuracies(hits, None, True) == pytest.approx(expected)
