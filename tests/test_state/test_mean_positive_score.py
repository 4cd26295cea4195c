import pytest
import torch

from mmrank.state import MeanPositiveScore


def _one(values):
    """A batch of one list without padding."""
    pos = torch.as_tensor(values, dtype=torch.float64).reshape(1, -1)
    return pos, torch.ones_like(pos, dtype=torch.bool)


def _step(state, now, before=None):
    """One iteration: the batch under the old weights, then the new ones."""
    if before is not None:
        with state.probing():
            state.update(*_one(before))
    return state.update(*_one(now)).item()


def test_plain_mode_is_the_moving_average():
    state = MeanPositiveScore(momentum=0.1)
    assert _step(state, [1.0, 3.0]) == 2
    assert _step(state, [4.0]) == pytest.approx(0.9 * 2 + 0.1 * 4)
    assert state.num_updates.item() == 2


def test_exact_mode_is_equation_6():
    lam, state = 0.1, MeanPositiveScore(momentum=0.1, mode='exact')
    mu = _step(state, [2.0], before=[2.0])
    for now, before in [(3.0, 2.5), (1.0, 1.5), (0.0, 0.3)]:
        mu = (1 - lam) * mu + lam * now + (1 - lam) * (now - before)
        assert _step(state, [now], [before]) == pytest.approx(mu, rel=1e-6)


def test_off_mode_is_the_batch_mean():
    state = MeanPositiveScore(mode='off')
    for value in (3.0, -1.0):
        assert _step(state, [value, value + 1]) == value + 0.5


def test_fixed_mode_never_moves():
    state = MeanPositiveScore(mode=0.25)
    for value in (3.0, -1.0):
        assert _step(state, [value]) == 0.25
    other = MeanPositiveScore()
    _step(other, [7.0])
    state.load_state_dict(other.state_dict())
    assert _step(state, [1.0]) == 0.25


def test_frozen_weights_make_exact_and_plain_agree():
    torch.manual_seed(0)
    plain = MeanPositiveScore()
    exact = MeanPositiveScore(mode='exact')
    for _ in range(50):
        batch = torch.randn(8)
        assert _step(exact, batch, batch) == pytest.approx(_step(plain, batch), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize('lam', [0.01, 0.1])
def test_linear_drift_exact_has_no_lag_and_plain_lags(lam):
    """Plain EMA trails a drift d per step by (1 - lam)/lam d."""
    drift, steps = 0.05, 1000
    torch.manual_seed(1)
    plain = MeanPositiveScore(momentum=lam)
    exact = MeanPositiveScore(momentum=lam, mode='exact')
    errors = []
    for k in range(steps):
        noise = 0.1 * torch.randn(16)
        now = k * drift + noise
        mu_plain = _step(plain, now)
        mu_exact = _step(exact, now, now - drift)
        if k > steps // 2:
            errors.append((mu_exact - k * drift, mu_plain - k * drift))
    exact_error, plain_error = torch.tensor(errors).double().T
    # Standard deviation of the batch mean: 0.1/sqrt(16); its EMA is smaller.
    assert exact_error.abs().max() < 4 * 0.025 * (lam / (2 - lam)) ** 0.5
    lag = (1 - lam) / lam * drift
    assert plain_error.mean().item() == pytest.approx(-lag, rel=0.02)


def test_batches_without_positives_or_not_finite_leave_the_state():
    state = MeanPositiveScore()
    assert _step(state, []) == 0
    assert state.num_updates.item() == 0
    _step(state, [5.0])
    for bad in ([], [float('nan'), 1.0], [float('inf')]):
        assert _step(state, bad) == 5
    assert state.num_updates.item() == 1


def test_lists_of_one_row_are_pooled():
    """The mean of a class is that over all pairs of its queries."""
    rows = torch.tensor([4, 1, 4, 4, 1, 0])
    g = torch.Generator().manual_seed(0)
    state = MeanPositiveScore(5, 0.25)
    expected = [0.0] * 5
    for step in range(3):
        pos = torch.randn(6, 7, generator=g)
        mask = torch.rand(6, 7, generator=g) < 0.6
        mask[5] = False
        got = state.update(pos, mask, rows=rows)
        for row in (1, 4):
            mean = pos[rows == row][mask[rows == row]].mean().item()
            lam = 0.25 if step else 1.0
            expected[row] += lam * (mean - expected[row])
        assert got.tolist() == pytest.approx([expected[r] for r in rows], abs=1e-6)
    assert state.num_updates.tolist() == [0, 3, 0, 0, 3]
    order = torch.tensor([3, 0, 5, 2, 1, 4])
    other = MeanPositiveScore(5, 0.25)
    other.load_state_dict(state.state_dict())
    state.update(pos, mask, rows=rows)
    other.update(pos[order], mask[order], rows=rows[order])
    torch.testing.assert_close(state.mean, other.mean)
