"""The moving score vector of SOPRC and the mean positive score of stable AP."""

import copy
import math

import pytest
import torch

from mmrank.state import MeanPositiveScore, ScoreVector
from mmrank.state.score_vector import interpolate_scores

V = 12


def _state(size=1, **kwargs):
    return ScoreVector(size, V, **kwargs)


def _phi(scores):
    return interpolate_scores(torch.as_tensor(scores), V, -1.0, 1.0)


def _step(state, *lists, rows=None):
    """Update with lists of unlike length, padded with NaN."""
    width = max(map(len, lists))
    pos = torch.full((len(lists), width), math.nan)
    for row, values in zip(pos, lists):
        row[: len(values)] = torch.tensor(values)
    rows = None if rows is None else torch.tensor(rows)
    return state.update((pos, ~pos.isnan()), rows=rows)


def test_rows_are_classes_and_the_seen_mask_is_per_class():
    state = _state(5, momentum=0.5)
    got = _step(state, [0.1, 0.3], [0.7], rows=[3, 1])
    torch.testing.assert_close(got[0], _phi([0.1, 0.3]))
    torch.testing.assert_close(got[1], _phi([0.7]))
    assert (state.num_updates > 0).tolist() == [False, True, False, True, False]
    assert (state.vector[[0, 2, 4]] == 0).all()
    got = _step(state, [0.2], [0.4], rows=[0, 1])
    torch.testing.assert_close(got[0], _phi([0.2]))
    torch.testing.assert_close(got[1], (_phi([0.7]) + _phi([0.4])) / 2)
    assert state.num_updates.tolist() == [1, 2, 0, 1, 0]


def test_one_vector_pools_its_lists():
    state = _state()
    got = _step(state, [0.1], [], [0.3, 0.5])
    torch.testing.assert_close(got[0], (_phi([0.1]) + _phi([0.3, 0.5])) / 2)
    assert torch.equal(got, got[:1].expand(3, V))
    assert state.num_updates.tolist() == [1]


@pytest.mark.parametrize('seed', range(5))
def test_repeated_classes_merge_in_any_order(seed):
    """One step with the mean of phi: no list is lost, whatever the order."""
    g = torch.Generator().manual_seed(seed)
    pos = torch.rand(9, 3, generator=g)
    rows = torch.tensor([2, 0, 2, 2, 0, 1, 1, 2, 0])
    mask = torch.ones_like(pos, dtype=torch.bool)
    mask[3] = False
    start = torch.rand(3, V, generator=g)
    order = torch.randperm(9, generator=g)
    states = [_state(3, momentum=0.3) for _ in range(2)]
    for state, at in zip(states, (torch.arange(9), order)):
        state.vector.copy_(start)
        state.num_updates.fill_(4)
        got = state.update((pos[at], mask[at]), rows=rows[at])
        assert torch.equal(got, state.vector[rows[at]])
        assert state.num_updates.tolist() == [5, 5, 5]
    torch.testing.assert_close(*(s.vector for s in states))
    for c in range(3):
        lists = [_phi(pos[i]) for i in range(9) if rows[i] == c and i != 3]
        expected = 0.7 * start[c] + 0.3 * torch.stack(lists).mean(0)
        torch.testing.assert_close(states[0].vector[c], expected)


def test_off_mode_gives_every_list_its_own_scores():
    state = _state(2, mode='off')
    for _ in range(2):
        got = _step(state, [0.1], [0.3, 0.5], [0.2], rows=[0, 0, 1])
        torch.testing.assert_close(got[0], _phi([0.1]))
        torch.testing.assert_close(got[1], _phi([0.3, 0.5]))
    _step(state, [0.9], rows=[1])
    torch.testing.assert_close(state.vector[1], _phi([0.9]))
    torch.testing.assert_close(state.vector[0], (_phi([0.1]) + _phi([0.3, 0.5])) / 2)


@pytest.mark.parametrize('bad', [[], [math.inf, 0.1], [-math.inf]])
def test_lists_without_finite_scores_leave_the_state(bad):
    state = _state(2)
    _step(state, [0.1], [0.2])
    before = copy.deepcopy(state.state_dict())
    got = _step(state, bad, rows=[1])
    assert torch.equal(got[0], before['vector'][1])
    for name, value in state.state_dict().items():
        assert torch.equal(value, before[name])
    # Beside a good list of the same class it does not count.
    _step(state, bad, [0.4], rows=[1, 1])
    expected = 0.9 * _phi([0.2]) + 0.1 * _phi([0.4])
    torch.testing.assert_close(state.vector[1], expected)


def _one(values):
    """A batch of one list without padding."""
    pos = torch.as_tensor(values, dtype=torch.float64).reshape(1, -1)
    return pos, torch.ones_like(pos, dtype=torch.bool)


def _mean_step(state, now, before=None):
    """One iteration: the batch under the old weights, then the new ones."""
    if before is not None:
        with state.probing():
            state.update(*_one(before))
    return state.update(*_one(now)).item()


#: Values of the batches before and after the step, and the means of equation 6.
EXACT = ([2.0, 3.0, 1.0, 0.0], [2.0, 2.5, 1.5, 0.3], [2.0, 2.55, 1.945, 1.4805])


@pytest.mark.parametrize(
    ('mode', 'batches', 'before', 'means'),
    [
        ('plain', [2.0, 4.0], [None, None], [2.0, 0.9 * 2 + 0.1 * 4]),
        ('exact', *EXACT),
        ('off', [3.0, -1.0], [None, None], [3.0, -1.0]),
        (0.25, [3.0, -1.0], [None, None], [0.25, 0.25]),
    ],
)
def test_modes_of_the_mean(mode, batches, before, means):
    state = MeanPositiveScore(momentum=0.1, mode=mode)
    for now, old, mean in zip(batches, before, means):
        old = None if old is None else [old - 1, old + 1]
        assert _mean_step(state, [now - 1, now + 1], old) == pytest.approx(mean, rel=1e-6)
    if isinstance(mode, float):
        other = MeanPositiveScore()
        _mean_step(other, [7.0])
        state.load_state_dict(other.state_dict())
        assert _mean_step(state, [1.0]) == mode
    else:
        assert state.num_updates.item() == len(batches)


def test_batches_without_positives_or_not_finite_leave_the_state():
    state = MeanPositiveScore()
    assert _mean_step(state, []) == 0
    assert state.num_updates.item() == 0
    _mean_step(state, [5.0])
    for bad in ([], [float('nan'), 1.0], [float('inf')]):
        assert _mean_step(state, bad) == 5
    assert state.num_updates.item() == 1
