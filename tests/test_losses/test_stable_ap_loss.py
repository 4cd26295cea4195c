import pytest
import torch
from random_batches import one_vs_rest, rows_with_background

from mmrank.functional import OneSidedHuber, split_lists, stable_ap_loss
from mmrank.losses import EmbeddingBatch, StableAPLoss
from mmrank.losses.ranking.stable_ap import _weighted_risk

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


def _feed(loss, batches, factor=1.0):
    for scores, target in batches:
        loss(factor * scores, target)
    return loss


@pytest.mark.parametrize('settings', [{}, dict(mode='per_class')])
def test_an_auto_margin_follows_the_scale_of_the_scores(settings):
    """Scores times c, history included: the same loss, and the gradient over c."""
    batches = [rows_with_background(200, 4, seed=k) for k in range(4)]
    found = []
    for factor in (1.0, 0.6, 7.0):
        loss = StableAPLoss(num_classes=4, tau='auto', score_penalty=0.0, **settings)
        for state in (loss.spread, loss.mean_positive, loss.imbalance):
            state.mean = state.mean.double()  # float32 alone takes six digits
        _feed(loss, batches[:3], factor)
        scores = (factor * batches[3][0]).requires_grad_()
        value = loss(scores, batches[3][1])
        found.append((value, factor * torch.autograd.grad(value, scores)[0]))
    for got in found[1:]:
        torch.testing.assert_close(got, found[0], rtol=1e-12, atol=1e-16)


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
