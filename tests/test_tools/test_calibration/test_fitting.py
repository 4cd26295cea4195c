"""Fitted maps against scikit-learn and against plain optimisation."""

import numpy as np
import pytest
import torch

pytest.importorskip('sklearn')
from calibration.fitting import fit_calibration
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


def test_isotonic_map_is_that_of_scikit_learn():
    from sklearn.isotonic import IsotonicRegression

    judged = made_up()
    found = fit_calibration(judged)
    new = torch.rand(300, generator=torch.Generator().manual_seed(0))
    for label in range(2):
        mine = judged.of_class(label)
        fitted = IsotonicRegression(out_of_bounds='clip').fit(
            mine.scores.double().numpy(), mine.is_right.double().numpy()
        )
        got = found.probabilities(new, torch.full((300,), label))
        expected = fitted.predict(new.double().numpy())
        assert got.numpy() == pytest.approx(expected, abs=1.1e-6)


def test_probabilities_fit_scores_that_were_not_seen():
    found = fit_calibration(made_up((3000, 3000)))
    new = made_up((3000, 3000), seed=1)
    before = expected_calibration_error(new.scores, new.is_right)
    after = expected_calibration_error(found.probabilities(new.scores, new.labels), new.is_right)
    assert after < 0.4 * before


def test_rare_classes_get_the_map_of_all():
    judged = made_up((900, 400, 3, 0))
    found = fit_calibration(judged)
    assert [x.pooled for x in found.maps] == [False, False, True, True]
    assert found.maps[2].scores == found.maps[3].scores
    assert found.maps[3].count == found.maps[3].positives == 0
    shared = fit_calibration(judged, pooled=True)
    assert {x.scores for x in shared.maps} == {found.maps[2].scores}
    own = fit_calibration(judged, min_each=1)
    right = judged.of_class(2).is_right
    assert own.maps[2].pooled == bool(right.all() or not right.any())


def test_scores_that_fall_get_a_flat_map_that_keeps_their_order():
    flat = fit_calibration(made_up(slope=-2.0))
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
