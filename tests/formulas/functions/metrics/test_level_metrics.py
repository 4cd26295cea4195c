"""H-AP and NDCG@k of retrieval against functions of one list, and in the metric of a runner."""

import pytest
import torch
from retrieval_brute_force import by_dot
from torch.nn.functional import normalize

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_metric import RetrievalMetric
from mmrank.functional import graded_average_precision, level_metrics, ndcg


def made_up(size=30, seed=0):
    g = torch.Generator().manual_seed(seed)
    # Many inner products tie, exactly; cosines would by rounding alone.
    x = torch.randint(-2, 3, (size, 3), generator=g).double()
    fine = torch.randint(9, (size,), generator=g)
    return x, torch.stack([fine // 6, fine // 3, fine], 1)


def of_one_list(scores, level, k, alpha):
    """H-AP is graded average precision of shares of the levels, but for what it divides by."""
    scores, level = torch.tensor(scores, dtype=torch.float64), torch.tensor(level)
    share = (level.double() / 3) ** alpha / level.bincount()[level]
    hap = graded_average_precision(scores, share) * level.count_nonzero() / share.sum()
    return hap.item(), ndcg(scores, 2**level - 1, k).item()


@pytest.mark.parametrize('similarity', ['cosine', 'dot'])
@pytest.mark.parametrize('alpha', [1.0, 3.0])
def test_each_query_has_the_figures_of_its_list(similarity, alpha):
    x, labels = made_up()
    if similarity == 'cosine':
        x = torch.randn(30, 3, generator=torch.Generator().manual_seed(5)).double()
    options = dict(ndcg_at=[1, 5], similarity=similarity)
    one = by_dot(level_metrics, x, labels, alpha=alpha, **options)
    gallery = (x[:20], labels[:20])
    two = by_dot(level_metrics, x[20:], labels[20:], *gallery, **options)
    # A query at a time.
    parts = by_dot(level_metrics, x, labels, alpha=alpha, memory_limit=1, **options)
    for found, expected in zip(parts, one):
        torch.testing.assert_close(found, expected, equal_nan=True)
    unit = normalize(x) if similarity == 'cosine' else x
    for i in range(30):
        others = [j for j in range(30) if j != i]
        cases = [(one, i, others, alpha)] + ([(two, i - 20, range(20), 1.0)] if i >= 20 else [])
        for figures, row, gallery, power in cases:
            scores = [round(float(unit[i] @ unit[j]), 12) for j in gallery]
            level = [int((labels[i] == labels[j]).sum()) for j in gallery]
            assert any(level)
            for column, k in enumerate((1, 5)):
                hap, gain = of_one_list(scores, level, k, power)
                assert figures.hap[row].item() == pytest.approx(hap, abs=1e-9)
                assert figures.ndcg[row, column].item() == pytest.approx(gain, abs=1e-9)


def test_without_relevant_entries():
    x, labels = made_up(2)
    labels[1] = 99  # a class of its own on each level
    assert level_metrics(x, labels).hap.isnan().all()
    assert level_metrics(x[:0], labels[:0], x, labels).ndcg.shape == (0, 4)


def test_metric_of_a_runner():
    x, labels = made_up(seed=2)
    metric = RetrievalMetric(recall_at=(1, 5), device='cpu')
    data = [dict(feature=row, gt_label=label) for row, label in zip(x, labels)]
    metric.process(None, data)
    found = metric.evaluate(30)
    figures = level_metrics(x, labels, ndcg_at=(1, 5))
    for name, values in zip(('H_AP', 'NDCG@1', 'NDCG@5'), (figures.hap, *figures.ndcg.t())):
        assert found[f'retrieval/{name}'] == pytest.approx(100 * values.nanmean().item())
    # The finest level alone has the other figures.
    metric.process(None, [dict(sample, gt_label=sample['gt_label'][-1:]) for sample in data])
    plain = metric.evaluate(30)
    assert found.items() > plain.items()
    assert not any('NDCG' in name or 'H_AP' in name for name in plain)
    with pytest.raises(UserError, match='gt_label has 3 levels.*Fix: leave these out'):
        RetrievalMetric(leave_out='camera').label(dict(gt_label=labels[0]))


def test_a_level_that_does_not_refine_the_one_before():
    """Fine classes numbered from 0 inside of each coarse class, and rows of zeros and ones."""
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    coarse = torch.arange(60) % 3
    labels = torch.stack([coarse, torch.arange(60) // 3 % 2], 1)
    with pytest.raises(UserError, match='level 1 .* does not refine level 0') as caught:
        level_metrics(x, labels)
    assert 'Fix: labels[:, 1] = labels[:, : 2].unique(dim=0, return_inverse=True)[1]' in str(
        caught.value
    )
    labels[:, 1] = labels[:, :2].unique(dim=0, return_inverse=True)[1]
    expected = level_metrics(x, torch.stack([coarse, torch.arange(60) % 6], 1)).hap
    torch.testing.assert_close(level_metrics(x, labels).hap, expected)
    one_hot = (coarse[:, None] == torch.arange(3)).int()
    with pytest.raises(UserError, match='does not refine'):
        level_metrics(x[:30], one_hot[:30], x[30:], one_hot[30:])
