"""Losses of levels and of relevances: by formula, list by list, pair by pair, and as means."""

import itertools
import math

import pytest
import torch
from score_lists import one_sided_huber
from subjects import made_up, one_vs_rest, rows_with_background, with_gradient

from mmrank.errors import UserError
from mmrank.functional import (
    ap_loss,
    graded_average_precision,
    hap_loss,
    ndcg_loss,
    smooth_ap_loss,
    stable_ap_loss,
)
from mmrank.losses import (
    APLoss,
    EmbeddingBatch,
    GradedAPLoss,
    HAPLoss,
    LambdaLoss,
    ListNetLoss,
    NDCGLoss,
    SmoothAPLoss,
    StableAPLoss,
)

FACTORS = {'lambdarank': (0, 1), 'ndcg_loss2': (1, 0), 'ndcg_loss2++': (10, 1)}


def documents(n=12, seed=0, ties=False):
    scores = made_up(n, seed=seed).double()
    levels = torch.randint(4, (n,), generator=torch.Generator().manual_seed(seed))
    return (4 * scores).round() / 4 if ties else scores, levels


def lambda_loss(scores, levels, scheme, tau):
    """Every pair of a list; among equal scores the lower level ranks first."""
    n = len(scores)
    keys = [*zip((-scores).tolist(), levels.tolist())]
    order = sorted(keys)
    ranks = [(2 * order.index(key) + order.count(key) + 1) / 2 for key in keys]
    best = sum(
        (2**level - 1) / math.log2(2 + place)
        for place, level in enumerate(sorted(levels.tolist(), reverse=True))
    )
    by_distance, by_discount = FACTORS[scheme]
    total = 0 * scores.sum()
    for i in range(n):
        for j in range(n):
            if levels[i] <= levels[j]:
                continue
            d = abs(ranks[i] - ranks[j])
            delta = abs(1 / math.log2(1 + d) - 1 / math.log2(2 + d))
            rho = abs(1 / math.log2(1 + ranks[i]) - 1 / math.log2(1 + ranks[j]))
            gain = (2 ** int(levels[i]) - 2 ** int(levels[j])) / best
            logistic = torch.log2(1 + torch.exp((scores[j] - scores[i]) / tau))
            total = total + (by_distance * delta + by_discount * rho) * gain * logistic
    return total


def list_net(scores, levels):
    target = levels.double().exp() / levels.double().exp().sum()
    return -(target * (scores - scores.exp().sum().log())).sum()


LOSSES = {
    **{
        scheme: (LambdaLoss(scheme, tau=0.4), lambda *x, name=scheme: lambda_loss(*x, name, 0.4))
        for scheme in FACTORS
    },
    'default': (LambdaLoss(), lambda *x: lambda_loss(*x, 'ndcg_loss2++', 1.0)),
    'list_net': (ListNetLoss(), list_net),
    'ndcg': (NDCGLoss(tau=0.2), lambda *x: ndcg_loss(*x, tau=0.2)),
    'hap': (HAPLoss(tau=0.2, alpha=2.0), lambda *x: hap_loss(*x, tau=0.2, alpha=2.0)),
}


@pytest.mark.parametrize('ties', [False, True])
@pytest.mark.parametrize('name', LOSSES)
def test_a_list_is_the_formula(name, ties):
    loss, formula = LOSSES[name]
    for n in (1, 2, 5, 12):
        scores, levels = documents(n, n, ties)
        found = with_gradient(loss, scores, levels.float())
        expected = with_gradient(formula, scores, levels)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert found[1].abs().sum() > 0


@pytest.mark.parametrize('name', LOSSES)
def test_rows_are_lists(name):
    """Their mean is over those that have something to find."""
    loss, formula = LOSSES[name]
    scores, levels = (x.view(4, 3) for x in documents())
    levels[1] = 0
    expected = sum(formula(*x) for k, x in enumerate(zip(scores, levels)) if k != 1) / 3
    torch.testing.assert_close(loss(scores, levels, group=torch.arange(4)), expected)
    with pytest.raises(UserError, match=r'a list in each row.*group=torch.arange'):
        loss(scores, levels)


@pytest.mark.parametrize('name', LOSSES)
def test_levels_of_thousands(name):
    """Clicks as levels; of what stands in a share nothing changes by the size of the numbers."""
    loss, formula = LOSSES[name]
    scores = made_up(4).double()
    value, slope = with_gradient(loss, scores, torch.tensor([0, 1, 2, 5000]))
    assert value.isfinite()
    assert slope.isfinite().all()
    levels = torch.tensor([0, 1, 2, 60])
    torch.testing.assert_close(loss(scores, levels), formula(scores, levels))


SETTING = dict(tau=0.7, bound=15.0, a=0.1, t=2.0, eps=0.1)
MU = 0.2
FUNCTIONS = {StableAPLoss: stable_ap_loss, SmoothAPLoss: smooth_ap_loss, APLoss: ap_loss}


def _list(num_pos=12, num_neg=50, seed=0):
    """Scores, labels and relevances of one list, the positives first."""
    g = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(num_pos + num_neg, generator=g, dtype=torch.float64)
    labels = torch.arange(len(scores)) < num_pos
    grades = torch.where(labels, 0.1 + 0.9 * torch.rand(len(scores), generator=g).double(), 0)
    return scores, labels, grades


def _weights(pos):
    smoothed = (one_sided_huber(pos - MU, SETTING['tau']) / SETTING['bound']).clamp(0, 1)
    return ((1 + SETTING['a']) / (smoothed + SETTING['a'])) ** SETTING['t']


def _brute_force(scores, labels, grades, rho, weights='normalised'):
    """The mean over thresholds of u, each with the positives below it as negatives."""
    pos, neg, u = scores[labels], scores[~labels], grades[labels]
    w = _weights(pos.detach())
    steps = torch.cat([u.new_zeros(1), u.unique()])
    total, mass = 0.0, 0.0
    for below, step in itertools.pairwise(steps):
        real = u >= step
        others = torch.cat([neg, pos[~real]])
        pairs = one_sided_huber(pos[real][:, None] - others, SETTING['tau'])
        own = w[real][:, None].expand_as(pairs)
        total = total + (step - below) * (own * pairs).sum()
        mass = mass + (step - below) * (own if weights == 'normalised' else own * 0 + 1).sum()
    x = rho * total / mass
    return (SETTING['eps'] ** 2 + x / (1 + x)).sqrt()


@pytest.mark.parametrize('weights', ['normalised', 'printed'])
@pytest.mark.parametrize('num_pos', [1, 2, 12])
@pytest.mark.parametrize('ten', [False, True])
def test_is_the_mean_over_thresholds(ten, num_pos, weights):
    """Ten lists of one threshold each, as in COCO's metric, or all grades."""
    scores, labels, grades = _list(num_pos)
    if ten:
        grades = (grades * 10).ceil() / 10
    expected = with_gradient(_brute_force, scores, labels, grades, 3.0, weights)
    for factor in (1.0, 7.0):  # Only ratios of relevances count.
        found = with_gradient(
            stable_ap_loss,
            scores,
            labels,
            MU,
            **SETTING,
            rho=3.0,
            weights=weights,
            relevance=factor * grades,
        )
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ('loss', 'settings'),
    [
        (stable_ap_loss, dict(SETTING, mean_pos=MU)),
        (stable_ap_loss, dict(SETTING, mean_pos=MU, weights='printed')),
        (smooth_ap_loss, {}),
        (ap_loss, dict(interpolate=False)),
        (ap_loss, dict(interpolate=True)),
    ],
)
def test_equal_relevances_are_the_loss_without(loss, settings):
    scores, labels, _ = _list()
    expected = with_gradient(loss, scores, labels, **settings)
    for grade in (1.0, 0.3):
        relevance = torch.full_like(scores, grade)
        found = with_gradient(loss, scores, labels, **settings, relevance=relevance)
        is_same = grade == 1 and loss is not stable_ap_loss
        tolerance = 0 if is_same else 1e-12
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ('loss', 'settings'),
    [(smooth_ap_loss, dict(tau=1e-4)), (ap_loss, dict(delta=1e-4, interpolate=False))],
)
def test_rivals_tend_to_the_risk_of_graded_average_precision(loss, settings):
    for seed in range(5):
        scores, labels, grades = _list(seed=seed)
        if seed == 4:
            scores = 10 * scores + grades  # nearly sorted
        gap = graded_average_precision(scores, grades)
        expected = 1 - gap / grades[labels].mean()
        found = loss(scores, labels, **settings, relevance=grades)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        sorted_by_grade = loss(grades, labels, **settings, relevance=grades)
        assert sorted_by_grade.item() == pytest.approx(0, abs=1e-9)


def test_update_of_ap_loss_by_hand():
    """A negative at 9, u = 1/2 at 5 and u = 1 at 0."""
    logits = torch.tensor([0.0, 5.0, 9.0], dtype=torch.float64, requires_grad=True)
    u = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    loss = ap_loss(logits, u, relevance=u, interpolate=False)
    # F = (1 + 1/2, 1/2) of ranks 3 and 2, over a sum of 3/2.
    errors = torch.tensor([1.5 / 3, 0.5 / 2]).double() / 1.5
    assert loss.item() == pytest.approx(errors.sum().item())
    loss.backward()
    first, second = errors.tolist()
    by_hand = [-first, first / 3 - second, first * 2 / 3 + second]
    assert logits.grad.tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize('kind', [StableAPLoss, SmoothAPLoss, APLoss])
def test_modules_take_the_iou_of_the_boxes(kind):
    scores, target = rows_with_background(40, 3)
    labels = one_vs_rest(scores, target)
    iou = torch.linspace(0.2, 0.9, int(labels.sum()), dtype=torch.float64)
    plain, graded = kind(quality=0), kind(quality=0.9)
    assert (plain.box_input, graded.box_input) == (None, 'quality')
    # The default is graded where a head passes the boxes, and plain elsewhere.
    value = graded(scores, target, quality=iou)
    assert kind()(scores, target, quality=iou) == value
    assert kind()(scores, target) == plain(scores, target)
    relevance = torch.zeros(40, 3).double()
    relevance[labels] = 0.1 + 0.9 * iou
    lists = scores.flatten(), relevance.flatten() > 0
    settings = {}
    penalty = 0
    if kind is StableAPLoss:
        mean = scores[labels].mean().float()
        settings = dict(mean_pos=mean, tau=1.0, bound=21.0, rho=graded.diagnostics['rho'])
        penalty = 0.001 * mean.square()
    expected = FUNCTIONS[kind](*lists, **settings, relevance=relevance.flatten()) + penalty
    torch.testing.assert_close(value, expected, rtol=1e-7, atol=0)
    batch = EmbeddingBatch.of_one_batch(torch.eye(8), torch.arange(8) % 2)
    with pytest.raises(ValueError, match='retrieval batch'):
        graded.embedding_loss(batch)
    assert kind().embedding_loss(batch) == kind(quality=0).embedding_loss(batch)


def test_graded_ap_loss_is_the_setting_that_it_names():
    scores, target = rows_with_background(40, 3)
    iou = torch.linspace(0.2, 0.9, int((target < 3).sum()))
    named, plain = GradedAPLoss(loss_weight=1.0), APLoss(quality=0.9, delta=0.5, interpolate=False)
    found, expected = (with_gradient(loss, scores, target, quality=iou) for loss in (named, plain))
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize('interpolate', [True, False])
def test_the_order_of_tied_positives_does_not_matter(interpolate):
    scores = torch.tensor([0.0, 0.0, 0.0, -1.0, torch.inf, torch.inf])
    labels = torch.tensor([1, 1, 0, 1, 1, 0])
    relevance = torch.tensor([1.0, 0.2, 0.0, 0.7, 0.4, 0.0])
    expected = ap_loss(scores, labels, interpolate=interpolate, relevance=relevance)
    for order in itertools.islice(itertools.permutations(range(6)), 0, None, 7):
        places = list(order)
        found = ap_loss(
            scores[places], labels[places], interpolate=interpolate, relevance=relevance[places]
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('kind', [StableAPLoss, SmoothAPLoss, APLoss, GradedAPLoss])
def test_broken_boxes_show_in_the_loss(kind):
    target = torch.tensor([0, 0, 1, 1])
    value = kind()(torch.randn(4, 1), target, avg_factor=4, quality=torch.full((2,), torch.nan))
    assert value.isnan()


@pytest.mark.parametrize('kind', [StableAPLoss, SmoothAPLoss, APLoss])
def test_without_any_relevance_there_is_no_loss(kind):
    """An IoU of 0 throughout, with quality=1."""
    loss = kind(quality=1)
    target = torch.tensor([0, 0, 1, 1, 1, 1])
    if kind is StableAPLoss:
        loss.score_penalty = 0.0
    value, slope = with_gradient(
        loss, torch.randn(6, 1), target, avg_factor=6, quality=torch.zeros(2)
    )
    assert value == 0
    assert not slope.any()
    if kind is StableAPLoss:
        assert loss.imbalance.num_updates == 0
