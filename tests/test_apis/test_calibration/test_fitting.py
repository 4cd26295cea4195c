"""Fitted maps against scikit-learn and against plain optimisation."""

import numpy as np
import pytest
import torch

pytest.importorskip('sklearn')
from scipy.optimize import minimize

from calibration.fitting import METHODS, fit_calibration
from calibration.splits import JudgedScores, as_float32
from mmrank.errors import UserError
from mmrank.functional import expected_calibration_error


def made_up(counts=(900, 400), slope=2.0, offset=-1.0, seed=0):
    """Boxes whose true probability is a Platt map of their score."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    logits = rng.normal(0, 2, len(labels))
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    # Of the second class higher.
    chance = 1 / (1 + np.exp(-(slope * logits + offset + labels)))
    right = rng.random(len(labels)) < chance
    return JudgedScores(
        'detection',
        tuple(f'class {i}' for i in range(len(counts))),
        torch.from_numpy(scores),
        torch.from_numpy(labels),
        torch.from_numpy(right),
    )


def likelihood(settings, logits, targets):
    scale, offset = settings
    z = scale * logits + offset
    return (np.logaddexp(0, z) - targets * z).sum()


def test_platt_map_has_the_highest_likelihood():
    judged = made_up()
    found = fit_calibration(judged, 'platt')
    for label, one in enumerate(found.maps):
        mine = judged.of_class(label)
        scores = mine.scores.double().numpy()
        logits = np.log(scores) - np.log1p(-scores)
        t = mine.is_right.double().numpy()
        # Platt 1999: (N+ + 1) / (N+ + 2) and 1 / (N- + 2).
        high = (t.sum() + 1) / (t.sum() + 2)
        low = 1 / (len(t) - t.sum() + 2)
        soft = low + t * (high - low)
        best = minimize(likelihood, [1.0, 0.0], (logits, soft), 'BFGS', options=dict(gtol=1e-8))
        assert [one.scale, one.offset] == pytest.approx(best.x.tolist(), rel=1e-4)


def test_the_truth_is_found():
    one, two = fit_calibration(made_up((60_000, 60_000)), 'platt').maps
    assert [one.scale, one.offset] == pytest.approx([2, -1], abs=0.1)
    assert [two.scale, two.offset] == pytest.approx([2, 0], abs=0.1)


def test_isotonic_map_is_that_of_scikit_learn():
    from sklearn.isotonic import IsotonicRegression

    judged = made_up()
    found = fit_calibration(judged, 'isotonic')
    new = torch.rand(300, generator=torch.Generator().manual_seed(0))
    for label in range(2):
        mine = judged.of_class(label)
        fitted = IsotonicRegression(out_of_bounds='clip').fit(
            mine.scores.double().numpy(), mine.is_right.double().numpy()
        )
        got = found.probabilities(new, torch.full((300,), label))
        expected = fitted.predict(new.double().numpy())
        assert got.numpy() == pytest.approx(expected, abs=1.1e-6)


@pytest.mark.parametrize('method', METHODS)
def test_probabilities_fit_scores_that_were_not_seen(method):
    found = fit_calibration(made_up((3000, 3000)), method)
    new = made_up((3000, 3000), seed=1)
    before = expected_calibration_error(new.scores, new.is_right)
    after = expected_calibration_error(found.probabilities(new.scores, new.labels), new.is_right)
    assert after < 0.4 * before


def test_rare_classes_get_the_map_of_all():
    judged = made_up((900, 400, 3, 0))
    found = fit_calibration(judged, 'isotonic')
    assert [x.pooled for x in found.maps] == [False, False, True, True]
    assert found.maps[2].scores == found.maps[3].scores
    assert found.maps[3].count == found.maps[3].positives == 0
    shared = fit_calibration(judged, 'isotonic', pooled=True)
    assert {x.scores for x in shared.maps} == {found.maps[2].scores}
    own = fit_calibration(judged, 'isotonic', min_each=1)
    right = judged.of_class(2).is_right
    assert own.maps[2].pooled == bool(right.all() or not right.any())


def test_a_map_that_falls_is_that_of_all_or_an_error():
    good = made_up()
    worse = JudgedScores(
        good.task,
        good.classes,
        torch.where(good.labels == 1, 1 - good.scores, good.scores),
        good.labels,
        good.is_right,
    )
    found = fit_calibration(worse, 'platt')
    assert [x.pooled for x in found.maps] == [False, True]
    with pytest.raises(UserError, match='not more often right'):
        fit_calibration(made_up(slope=-2.0), 'platt')
    # An isotonic map is then flat, and keeps the order all the same.
    flat = fit_calibration(made_up(slope=-2.0), 'isotonic')
    got = flat.probabilities(torch.tensor([0.2, 0.8]), torch.tensor([0, 0]))
    assert got[0] < got[1] < got[0] + 1e-6


@pytest.mark.parametrize(('is_right', 'word'), [(False, 'no'), (True, 'every')])
def test_nothing_to_fit_is_one_message(is_right, word):
    judged = made_up((20,))
    same = torch.full((20,), is_right)
    judged = JudgedScores('detection', ('a',), judged.scores, judged.labels, same)
    with pytest.raises(UserError, match=f'{word} box .* is right, of 20'):
        fit_calibration(judged)


@pytest.mark.parametrize(
    ('scores', 'text'),
    [
        ([0.5, 1.25], r'are from 0.5 to 1.25, and must be in \[0, 1\]'),
        ([0.5, float('nan')], 'must be in'),
        ([0.5, 0.5 + 1e-9], 'more digits than float32'),
    ],
)
def test_scores_that_cannot_be_kept(scores, text):
    with pytest.raises(UserError, match=text):
        as_float32(np.array(scores), np.zeros(2, int), 'boxes')


def test_scores_of_two_classes_may_be_close():
    got = as_float32(np.array([0.5, 0.5 + 1e-9]), np.arange(2), 'boxes')
    assert got.dtype == torch.float32
