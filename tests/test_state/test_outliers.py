"""One outlier in a moving average."""

import warnings

import pytest
import torch

from mmrank.state import MeanPositiveScore, ScoreVector

RANGE = (-5.0, 5.0)


def scores(*values):
    x = torch.tensor([values], dtype=torch.float64)
    return x, torch.ones_like(x, dtype=torch.bool)


def tracked(mode='plain', size=1, **kwargs):
    state = MeanPositiveScore(size, 0.01, mode, score_range=RANGE, **kwargs)
    for _ in range(3):
        previous(state, 1.0)
        state.update(*scores(1.0, 2.0))
    return state


def previous(state, mean):
    """What the batch had under the weights before, for mode 'exact'."""
    if state.mode == 'exact':
        with state.probing():
            state.update(*scores(mean))


@pytest.mark.parametrize('broken', [1e6, -1e6, 1e38, 1e39, 1e300])
@pytest.mark.parametrize('mode', ['plain', 'exact'])
def test_an_outlier_is_forgotten_at_once(mode, broken):
    state, other = tracked(mode), tracked(mode)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        previous(state, -broken)
        state.update(*scores(broken, broken))
    # By 0.01 times the width of the range and the size of the mean at most.
    assert (state.mean - other.mean).abs() <= 0.01 * (10 + 2 * 1.5)
    before = state.mean.clone()
    previous(state, 1.5)
    state.update(*scores(1.5))
    assert state.mean.isfinite()
    assert (state.mean - before).abs() <= 0.01 * 1.5


@pytest.mark.parametrize('far', [-300.0, 300.0])
def test_scores_far_outside_of_the_range_are_followed(far):
    """A range that was declared too narrow costs nothing but a warning."""
    state = MeanPositiveScore(1, 0.1, score_range=RANGE)
    with pytest.warns(UserWarning, match='score_range'):
        state.update(*scores(far, far))
    for _ in range(200):
        state.update(*scores(far, far))
    torch.testing.assert_close(state.mean, torch.tensor([far]))
    for _ in range(200):
        state.update(*scores(1.0))
    torch.testing.assert_close(state.mean, torch.ones(1))


def test_an_infinite_mean_of_an_old_checkpoint_starts_afresh():
    state = tracked()
    saved = state.state_dict()
    saved['mean'] = torch.full_like(saved['mean'], torch.inf)
    state.load_state_dict(saved)
    state.update(*scores(1.0, 2.0))
    assert state.mean.item() == 1.5


@pytest.mark.parametrize('broken', [1e6, 1e38, 1e39])
def test_a_score_vector_forgets_an_outlier(broken):
    state, other = (ScoreVector(1, 4, 0.1, RANGE) for _ in range(2))
    ordinary, mask = scores(0.5, 1.0, 1.5, 2.0)
    for x in (state, other):
        x.update(ordinary, mask)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        state.update(broken * ordinary, mask)
    # What does not fit into float32 is left out without a word, as before.
    assert len(caught) == (broken < 1e39)
    assert (state.vector - other.vector).abs().max() <= 0.1 * (100 + 2 * 2)
    for _ in range(60):
        state.update(ordinary, mask)
    torch.testing.assert_close(state.vector, other.vector, atol=0.1, rtol=0)
