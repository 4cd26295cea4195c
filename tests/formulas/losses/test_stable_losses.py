"""SOPRC and stable AP: modes, means, spreads and what they keep."""

import pytest
import torch
from subjects import one_vs_rest, rows_with_background
from torch.nn.functional import normalize

from mmrank.functional import OneSidedHuber, soprc_loss, split_lists, stable_ap_loss
from mmrank.losses import EmbeddingBatch, SOPRCLoss, StableAPLoss
from mmrank.losses.ranking.soprc import _semi_variance, soprc_terms
from mmrank.losses.ranking.stable_ap import _weighted_risk
from mmrank.state.score_vector import interpolate_scores

LOGITS = dict(tau1=1.0, tau2=0.05, score_range=(-5.0, 5.0))
TAUS = dict(tau1=1.0, tau2=0.05)


def _queries(labels):
    """Positives and negatives of every image as a query."""
    same = labels[:, None] == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool), ~same


def _retrieval(seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    labels = torch.tensor([5, 2, 5, 0, 2, 5, 3, 2, 0, 2])
    e = torch.randn(len(labels), 6, generator=g, dtype=torch.float64)
    return normalize(e, dim=1).to(dtype), labels


def test_v_is_one_point_in_a_list_of_one_positive():
    """By hand, below and above what was seen; equal to a vector of one point."""
    for first, second, share in ((2.0, 1.0, 1.0), (1.0, 2.0, 0.5)):
        scores, is_pos = torch.tensor([second, 1.8, -3.0]), torch.tensor([1, 0, 0])
        losses = []
        for length in (100, 1):
            loss = SOPRCLoss(prior=0.5, vector_length=length, momentum=1e-6, **LOGITS)
            loss(torch.tensor([first, 0.0]), torch.tensor([1, 0]))
            losses.append(loss(scores, is_pos))
        pair = 1 - 2 * (second - 1.8) if second < 1.8 else (1 - (second - 1.8)) ** 2
        x = pair / 2 / share
        torch.testing.assert_close(losses[0].item(), x / (1 + x), rtol=1e-5, atol=0)
        torch.testing.assert_close(losses[0], losses[1])


def lists_of(scores, target, mode):
    """Scores and labels of the rankings, one a class or one in all."""
    labels = one_vs_rest(scores, target)
    if mode == 'per_class':
        return scores.t(), labels.t()
    return scores.reshape(1, -1), labels.reshape(1, -1)


@pytest.mark.parametrize(('mode', 'prior'), [('flatten', 0.3), ('per_class', [0.1, 0.2, 0.3, 0.4])])
def test_soprc_renews_v_before_it_judges_a_batch(mode, prior):
    """Each ranking with a vector of its own, and a class without a positive without one."""
    loss = SOPRCLoss(4, mode, prior, vector_length=10, **LOGITS)
    v = {}
    for seed in range(2):
        scores, target = rows_with_background(120, 4, seed=seed, dtype=torch.float32)
        target[target == 2] = 4
        lists = lists_of(scores, target, mode)
        counted = lists[1].any(1)
        for k, (row, is_positive) in enumerate(zip(*lists)):
            if is_positive.any():
                phi = interpolate_scores(row[is_positive], 10, -5.0, 5.0)
                v[k] = 0.9 * v[k] + 0.1 * phi if k in v else phi
        vectors = torch.stack([v.get(k, torch.zeros(10)) for k in range(len(counted))])
        each = soprc_loss(*lists, vectors, prior=torch.tensor(prior), **TAUS)
        torch.testing.assert_close(loss(scores, target), each[counted].mean())
        torch.testing.assert_close(loss.score_vector.vector, vectors)
    assert ((loss.score_vector.num_updates > 0) == counted).all()
    torch.testing.assert_close(loss.logit_centre(), vectors.mean(1))


def test_ablation_rows():
    """Biased estimator, without v, and with the regulariser (table 2)."""
    e, labels = _retrieval(dtype=torch.float64)
    is_pos, is_neg = _queries(labels)
    scores = e @ e.t()
    counts = torch.tensor([20, 1, 40, 10, 1, 30])
    before = torch.linspace(-1, 1, 9).expand(6, 9)

    def run(**settings):
        loss = SOPRCLoss(6, 'per_class', vector_length=9, **TAUS, **settings)
        loss.score_vector.vector.copy_(before)
        loss.score_vector.num_updates.fill_(1)
        if settings['prior'] == 'counts':
            loss.set_class_counts(counts)
        return loss.loss_of_lists(scores, is_pos, is_neg, list_classes=labels)

    phi = torch.zeros(10, 9, dtype=torch.float64)
    has_positive = is_pos.any(1)
    for q in has_positive.nonzero().flatten().tolist():
        phi[q] = interpolate_scores(scores[q, is_pos[q]], 9, -1.0, 1.0)
    merged = [phi[(labels == c) & has_positive].mean(0) for c in labels]
    v = 0.9 * before[labels] + 0.1 * torch.stack(merged).nan_to_num()
    lists = split_lists(scores, is_pos, is_pos | is_neg)
    spread = _semi_variance(lists, 0.3, 0.7, of_beyond=False).sum() / 9

    def expected(v, prior):
        losses, _ = soprc_terms(lists, v, prior, OneSidedHuber(1.0), 0.05, lone_points=1)
        return losses.sum() / 9

    rows = [
        (dict(prior='batch', use_vector=False), expected(phi, None)),
        (dict(prior=0.05, use_vector=False), expected(phi, 0.05)),
        (dict(prior=0.05), expected(v, 0.05)),
        (dict(prior=0.05, lam1=0.3, lam2=0.7), expected(v, 0.05) + spread),
        # The largest share of the counts is scaled to max_prior.
        (dict(prior='counts', max_prior=0.1), expected(v, (counts / 400)[labels])),
    ]
    for settings, value in rows:
        torch.testing.assert_close(run(**settings), value, rtol=1e-5, atol=1e-6)
    assert len({round(value.item(), 6) for _, value in rows}) == 5


SETTING = dict(tau=1.0, bound=21.0, a=0.1, t=2.0, eps=0.1)


@pytest.mark.parametrize('reduction', ['mean', 'sum'])
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_stable_ap_of_each_ranking(mode, reduction):
    scores, target = rows_with_background(200, 4, dtype=torch.float32)
    target[target == 2] = 4
    lists = lists_of(scores, target, mode)
    counted = lists[1].any(1)
    means = torch.stack([x[y].mean() for x, y in zip(*lists)]).nan_to_num()
    settings = dict(num_classes=4, mode=mode, reduction=reduction)
    for rho in ('batch', 3.0):
        loss = StableAPLoss(**settings, rho=rho, score_penalty=0.0, loss_weight=2.0)
        each = stable_ap_loss(*lists, means, rho=None if rho == 'batch' else rho, **SETTING)
        expected = 2 * each.sum() / (counted.sum() if reduction == 'mean' else 1)
        torch.testing.assert_close(loss(scores, target), expected)
    assert torch.equal(loss.mean_positive.num_updates > 0, counted)
    assert loss.diagnostics['num_positive'] == lists[1].sum()
    if mode == 'flatten':
        penalised = StableAPLoss(**settings, rho=3.0, score_penalty=0.01)
        value = each.sum() + 0.01 * means.square().sum()
        torch.testing.assert_close(penalised(scores, target), value)


def _risk(scores, target):
    """X of one ranking, by the definition."""
    labels = one_vs_rest(scores, target)
    lists = split_lists(scores.double().flatten(), labels.flatten())
    mean = scores[labels].double().mean()
    risk, ratio = _weighted_risk(lists, mean, OneSidedHuber(1.0), 21.0, 0.1, 2.0, 'normalised')
    return risk.item(), ratio.item()


def test_auto_is_the_ratio_capped_by_the_moving_average_of_the_risk():
    loss = StableAPLoss(score_penalty=0.0, mean_mode='off')
    mean = None
    for seed, shift in enumerate((0.0, 2.0, -1.0)):
        scores, target = rows_with_background(200, 4, seed=seed, dtype=torch.float32)
        scores[target < 4] += shift
        risk, ratio = _risk(scores, target)
        mean = risk if mean is None else 0.9 * mean + 0.1 * risk
        rho = min(ratio, 1 / mean)
        value = loss(scores, target)
        x = rho * risk
        assert value.item() == pytest.approx((0.01 + x / (1 + x)) ** 0.5)
        notes = loss.diagnostics
        assert notes['rho'].item() == pytest.approx(rho)
        assert notes['argument'].item() == pytest.approx(x)
        assert notes['risk'].item() == pytest.approx(risk)
    # Once the ranking is nearly right, rho is the paper's n-/n+.
    easy, target = rows_with_background(200, 4, dtype=torch.float32)
    easy[target < 4, target[target < 4]] += 40
    for _ in range(200):
        loss(easy, target)
    assert loss.diagnostics['rho'].item() == pytest.approx(_risk(easy, target)[1])


def test_auto_has_an_average_for_each_class_and_one_for_all_queries():
    scores, target = rows_with_background(200, 4, dtype=torch.float32)
    target[target == 2] = 4
    loss = StableAPLoss(num_classes=4, mode='per_class')
    loss(scores, target)
    assert loss.imbalance.num_updates.tolist() == [1, 1, 0, 1]
    assert loss.diagnostics['argument'].item() == pytest.approx(1)
    queries = StableAPLoss(num_classes=6, mode='per_class', tau=0.1, score_range=(-1, 1))
    queries.embedding_loss(EmbeddingBatch.of_one_batch(*_retrieval()))
    assert queries.imbalance.num_updates.tolist() == [1, 0, 0, 0, 0, 0]
    assert queries.diagnostics['argument'].item() == pytest.approx(1)


def test_auto_before_any_training_step_takes_the_risk_of_the_list():
    scores, target = rows_with_background(200, 4, dtype=torch.float32)
    loss = StableAPLoss(score_penalty=0.0).eval()
    assert loss(scores, target).item() == pytest.approx(0.51**0.5)
    assert loss.imbalance.num_updates == 0


@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_an_auto_margin_is_a_multiple_of_the_running_spread(mode):
    """By hand: the margin in units of exp(EMA of log std) of the negatives, B in the same unit."""
    loss = StableAPLoss(num_classes=4, mode=mode, tau='auto', rho=2.0, score_penalty=0.0)
    log = mean = None
    for seed in range(3):
        scores, target = rows_with_background(200, 4, seed=seed)
        lists = lists_of(scores, target, mode)
        new = torch.stack([x[~y].std(correction=0) for x, y in zip(*lists)]).log().mean()
        means = torch.stack([x[y].mean() for x, y in zip(*lists)])
        log = new if log is None else log + loss.spread.momentum * (new - log)
        mean = means if mean is None else mean + 0.01 * (means - mean)
        value = loss(scores, target)
    expected = stable_ap_loss(*lists, mean, tau=float(log.exp()), bound=21.0, rho=2.0)
    torch.testing.assert_close(value.double(), expected.mean(), rtol=1e-6, atol=0)
