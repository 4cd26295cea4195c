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


def _queries_soprc(scores, is_pos, v, prior, mask):
    """SOPRC of each query; in a list of one positive v counts as one point."""
    lists = split_lists(scores, is_pos, mask)
    losses, _ = soprc_terms(lists, v, prior, OneSidedHuber(1.0), 0.05, lone_points=1)
    return losses


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


def test_soprc_flattens_all_scores():
    scores, target = rows_with_background(120, 4, dtype=torch.float32)
    loss = SOPRCLoss(prior=0.3, loss_weight=2.0, **LOGITS)
    labels = one_vs_rest(scores, target)
    v = interpolate_scores(scores[labels], 100, -5.0, 5.0)
    expected = 2 * soprc_loss(scores.flatten(), labels.flatten(), v, prior=0.3, **TAUS)
    torch.testing.assert_close(loss(scores, target), expected)
    # v is renewed before the second batch is judged by it.
    other, target = rows_with_background(120, 4, seed=1, dtype=torch.float32)
    labels = one_vs_rest(other, target)
    v = 0.9 * v + 0.1 * interpolate_scores(other[labels], 100, -5.0, 5.0)
    expected = 2 * soprc_loss(other.flatten(), labels.flatten(), v, prior=0.3, **TAUS)
    torch.testing.assert_close(loss(other, target), expected)
    torch.testing.assert_close(loss.score_vector.vector[0], v)


def test_per_class_is_one_list_and_one_vector_per_class():
    scores, target = rows_with_background(120, 4, dtype=torch.float32)
    target[target == 2] = 4
    priors = [0.1, 0.2, 0.3, 0.4]
    loss = SOPRCLoss(4, 'per_class', priors, vector_length=10, **LOGITS)
    labels = one_vs_rest(scores, target)
    v = torch.zeros(4, 10)
    for c in (0, 1, 3):
        v[c] = interpolate_scores(scores[labels[:, c], c], 10, -5.0, 5.0)
    expected = soprc_loss(scores.t(), labels.t(), v, prior=torch.tensor(priors), **TAUS)
    torch.testing.assert_close(loss(scores, target), expected.sum() / 3)
    assert (loss.score_vector.num_updates > 0).tolist() == [True, True, False, True]
    torch.testing.assert_close(loss.logit_centre(), v.mean(1))


def test_ablation_rows():
    """Biased estimator, without v, and with the regulariser (table 2)."""
    e, labels = _retrieval(dtype=torch.float64)
    is_pos, is_neg = _queries(labels)
    scores = e @ e.t()
    setting = dict(vector_length=9, **TAUS)

    counts = torch.tensor([20, 1, 40, 10, 1, 30])

    def run(seen_before, **kwargs):
        loss = SOPRCLoss(6, 'per_class', **setting, **kwargs)
        loss.score_vector.vector.copy_(seen_before)
        loss.score_vector.num_updates.fill_(1)
        if kwargs['prior'] == 'counts':
            loss.set_class_counts(counts)
        return loss.loss_of_lists(scores, is_pos, is_neg, list_classes=labels)

    phi = torch.zeros(10, 9, dtype=torch.float64)
    for q in (0, 1, 2, 3, 4, 5, 7, 8, 9):
        phi[q] = interpolate_scores(scores[q, is_pos[q]], 9, -1.0, 1.0)

    def expected(v, prior):
        lists = _queries_soprc(scores, is_pos, v, prior, mask=is_pos | is_neg)
        return lists.sum() / 9

    before = torch.linspace(-1, 1, 9).expand(6, 9)
    close = dict(rtol=1e-5, atol=1e-6)
    biased = run(before, prior='batch', use_vector=False)
    torch.testing.assert_close(biased, expected(phi, None), **close)
    unbiased = run(before, prior=0.05, use_vector=False)
    torch.testing.assert_close(unbiased, expected(phi, 0.05), **close)
    merged = [phi[(labels == c) & is_pos.any(1)].mean(0) for c in labels]
    v = 0.9 * before[labels] + 0.1 * torch.stack(merged).nan_to_num()
    with_v = run(before, prior=0.05)
    torch.testing.assert_close(with_v, expected(v, 0.05), **close)
    # The largest share of the counts is scaled to max_prior.
    of_counts = run(before, prior='counts', max_prior=0.1)
    torch.testing.assert_close(of_counts, expected(v, (counts / 400)[labels]), **close)
    lists = split_lists(scores, is_pos, is_pos | is_neg)
    spread = _semi_variance(lists, 0.3, 0.7, of_beyond=False)
    whole = run(before, prior=0.05, lam1=0.3, lam2=0.7)
    torch.testing.assert_close(whole, with_v + spread.sum() / 9, **close)
    assert len({round(x.item(), 6) for x in (biased, unbiased, with_v)}) == 3


SETTING = dict(tau=1.0, bound=21.0, a=0.1, t=2.0, eps=0.1)


def test_flatten_is_one_list_of_all_scores():
    scores, target = rows_with_background(200, 4, dtype=torch.float32)
    loss = StableAPLoss(rho='batch', score_penalty=0.0)
    labels = one_vs_rest(scores, target)
    mean, flat = scores[labels].mean(), (scores.flatten(), labels.flatten())
    expected = stable_ap_loss(*flat, mean, **SETTING)
    torch.testing.assert_close(loss(scores, target), expected)
    fixed = StableAPLoss(rho=3.0, score_penalty=0.01, loss_weight=2.0)
    expected = 2 * (stable_ap_loss(*flat, mean, rho=3.0, **SETTING) + 0.01 * mean.square())
    torch.testing.assert_close(fixed(scores, target), expected)


@pytest.mark.parametrize('reduction', ['mean', 'sum'])
def test_per_class_is_one_list_per_class(reduction):
    scores, target = rows_with_background(200, 4, dtype=torch.float32)
    target[target == 2] = 4
    loss = StableAPLoss(
        num_classes=4, mode='per_class', reduction=reduction, rho='batch', score_penalty=0.0
    )
    labels = one_vs_rest(scores, target)
    means = torch.stack([scores[labels[:, c], c].mean() for c in range(4)])
    expected = stable_ap_loss(scores.t(), labels.t(), means.nan_to_num(), **SETTING)
    expected = expected.sum() / (3 if reduction == 'mean' else 1)
    torch.testing.assert_close(loss(scores, target), expected)
    assert loss.mean_positive.num_updates.tolist() == [1, 1, 0, 1]
    assert loss.diagnostics['num_positive'] == labels.sum()


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
    embeddings = torch.nn.functional.normalize(torch.randn(40, 8), dim=1)
    labels = torch.arange(40) % 4
    queries = StableAPLoss(num_classes=4, mode='per_class', tau=0.1, score_range=(-1, 1))
    queries.embedding_loss(EmbeddingBatch.of_one_batch(embeddings, labels))
    assert queries.imbalance.num_updates.tolist() == [1, 0, 0, 0]
    assert queries.diagnostics['argument'].item() == pytest.approx(1)


def test_auto_before_any_training_step_takes_the_risk_of_the_list():
    scores, target = rows_with_background(200, 4, dtype=torch.float32)
    loss = StableAPLoss(score_penalty=0.0).eval()
    assert loss(scores, target).item() == pytest.approx(0.51**0.5)
    assert loss.imbalance.num_updates == 0


@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_an_auto_margin_is_a_multiple_of_the_running_spread(mode):
    """By hand: the margin in units of exp(EMA of log std) of the negatives, B in the same unit."""
    batches = [rows_with_background(200, 4, seed=k) for k in range(3)]
    loss = StableAPLoss(num_classes=4, mode=mode, tau='auto', rho=2.0, score_penalty=0.0)
    logs, means = [], []
    for scores, target in batches:
        labels = one_vs_rest(scores, target)
        change = torch.t if mode == 'per_class' else lambda x: x.reshape(1, -1)
        lists = change(scores), change(labels)
        stds = torch.stack([x[~y].std(correction=0) for x, y in zip(*lists)])
        means.append(torch.stack([x[y].mean() for x, y in zip(*lists)]))
        logs.append(stds.log().mean())
        value = loss(scores, target)
    log, mean = logs[0], means[0]
    for k in (1, 2):
        log = log + loss.spread.momentum * (logs[k] - log)
        mean = mean + 0.01 * (means[k] - mean)
    unit, tau, width = log.exp(), 1.0, 10.0
    scores, labels = lists
    expected = stable_ap_loss(
        scores, labels, mean, tau=tau * float(unit), bound=1 + 2 * width / tau, rho=2.0
    )
    torch.testing.assert_close(value.double(), expected.mean(), rtol=1e-6, atol=0)
