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


def test_one_vector_pools_its_lists():
    state = _state()
    got = _step(state, [0.1], [], [0.3, 0.5])
    torch.testing.assert_close(got[0], (_phi([0.1]) + _phi([0.3, 0.5])) / 2)
    assert torch.equal(got, got[:1].expand(3, V))
    assert state.num_updates.tolist() == [1]


def test_repeated_classes_merge_in_any_order():
    """One step with the mean of phi: no list is lost, whatever the order; some class has none."""
    g = torch.Generator().manual_seed(0)
    pos = torch.rand(9, 3, generator=g)
    rows = torch.tensor([2, 0, 2, 2, 0, 1, 1, 2, 0])
    mask = torch.ones_like(pos, dtype=torch.bool)
    mask[3] = False
    start = torch.rand(4, V, generator=g)
    for order in (torch.arange(9), torch.randperm(9, generator=g)):
        state = _state(4, momentum=0.3)
        state.vector.copy_(start)
        state.num_updates.fill_(4)
        found = state.update((pos[order], mask[order]), rows=rows[order])
        assert torch.equal(found, state.vector[rows[order]])
        assert state.num_updates.tolist() == [5, 5, 5, 4]
        for c in range(3):
            lists = [_phi(pos[i]) for i in range(9) if rows[i] == c and i != 3]
            expected = 0.7 * start[c] + 0.3 * torch.stack(lists).mean(0)
            torch.testing.assert_close(state.vector[c], expected)
        assert torch.equal(state.vector[3], start[3])


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
    found = _step(state, bad, rows=[1])
    assert torch.equal(found[0], before['vector'][1])
    torch.testing.assert_close(dict(state.state_dict()), dict(before), rtol=0, atol=0)
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
