import copy
import math

import pytest
import torch

from mmrank.state import ScoreVector
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
    return state.update(pos, ~pos.isnan(), rows)


def test_a_single_list_is_the_moving_average():
    state = _state(momentum=0.25)
    torch.testing.assert_close(_step(state, [0.1, 0.3])[0], _phi([0.1, 0.3]))
    expected = 0.75 * _phi([0.1, 0.3]) + 0.25 * _phi([0.5, 0.2, 0.9])
    got = _step(state, [0.5, 0.2, 0.9])
    torch.testing.assert_close(got[0], expected)
    assert torch.equal(state.vector, got)
    assert state.num_updates.tolist() == [2]


def test_rows_are_classes_and_the_seen_mask_is_per_class():
    state = _state(5, momentum=0.5)
    got = _step(state, [0.1, 0.3], [0.7], rows=[3, 1])
    torch.testing.assert_close(got[0], _phi([0.1, 0.3]))
    torch.testing.assert_close(got[1], _phi([0.7]))
    assert state.seen.tolist() == [False, True, False, True, False]
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
        got = state.update(pos[at], mask[at], rows[at])
        assert torch.equal(got, state.vector[rows[at]])
        assert state.num_updates.tolist() == [5, 5, 5]
    torch.testing.assert_close(*(s.vector for s in states))
    for c in range(3):
        lists = [_phi(pos[i]) for i in range(9) if rows[i] == c and i != 3]
        expected = 0.7 * start[c] + 0.3 * torch.stack(lists).mean(0)
        torch.testing.assert_close(states[0].vector[c], expected)


def test_proposition_1_mean_and_variance():
    """E[v] = E[phi] + (1-beta)^T (v_1 - E[phi]), Var <= Var[phi] b/(2-b).

    2,000 independent runs side by side, as rows of one state.
    """
    beta, steps, runs, n = 0.2, 8, 2000, 4
    g = torch.Generator().manual_seed(0)
    state = _state(runs, momentum=beta, score_range=(-99.0, 99.0))
    state.vector.fill_(3.0)
    state.num_updates.fill_(1)
    mask = torch.ones(runs, n, dtype=torch.bool)
    phis = []
    for _ in range(steps):
        pos = torch.randn(runs, n, generator=g)
        state.update(pos, mask)
        # momentum 1 keeps phi itself.
        alone = _state(runs, momentum=1.0, score_range=(-99.0, 99.0))
        phis.append(alone.update(pos, mask))
    phi = torch.cat(phis).double()
    mean, variance = phi.mean(0), phi.var(0)
    left = (1 - beta) ** steps
    v = state.vector.double()
    expected = mean + left * (3.0 - mean)
    tolerance = 5 * (variance * beta / (2 - beta) / runs).sqrt()
    assert ((v.mean(0) - expected).abs() < tolerance).all()
    limit = variance * beta / (2 - beta)
    # Exactly limit (1 - (1-beta)^2T); 5 standard errors of a variance.
    exact = limit * (1 - left**2)
    assert ((v.var(0) / exact - 1).abs() < 5 * (2 / runs) ** 0.5).all()
    assert (v.var(0) < limit * (1 + 5 * (2 / runs) ** 0.5)).all()


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
