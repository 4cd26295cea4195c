"""Temperatures out of checkpoints, their statistics and their history."""

import csv
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from mmrank.losses import BimodalISogCLRLoss, ISogCLRLoss
from mmrank.visualization.temperatures import (
    TemperatureHistory,
    _rank_correlation,
    class_temperatures,
    extreme_samples,
    frequency_correlation,
    read_temperatures,
    temperatures_of,
)


def visit(state, ids, tau):
    """Give samples a temperature and call them visited."""
    state.tau[ids] = torch.as_tensor(tau)
    state.log_s[ids] = 0.5


def test_names_values_and_visits_from_model_and_checkpoint(tmp_path):
    loss = BimodalISogCLRLoss(5)
    visit(loss.image_temperature, [1, 3], [0.02, 0.03])
    model = nn.ModuleDict({'head': nn.ModuleDict({'loss': loss})})
    path = tmp_path / 'epoch_1.pth'
    torch.save({'state_dict': model.state_dict(), 'meta': {}}, path)
    for found in (temperatures_of(model), read_temperatures(path)):
        image, text = found
        assert [f.name for f in found] == ['image_temperature', 'text_temperature']
        np.testing.assert_allclose(image.tau, [0.01, 0.02, 0.01, 0.03, 0.01], rtol=1e-6)
        assert image.visited.tolist() == [False, True, False, True, False]
        assert not text.visited.any()
    image.tau[0] = 9
    assert loss.image_temperature.tau[0] == pytest.approx(0.01)


def test_equal_last_names_stay_whole():
    model = nn.ModuleDict({'a': ISogCLRLoss(2), 'b': ISogCLRLoss(3)})
    names = [found.name for found in temperatures_of(model)]
    assert names == ['a.temperature', 'b.temperature']


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'does not exist'),
        ({'state_dict': {'weight': torch.ones(1)}}, 'has no per-sample'),
        # A learnt temperature of the whole model is none of the samples.
        ({'state_dict': {'loss.tau': torch.ones(1)}}, 'has no per-sample'),
        (b'text', 'is damaged or is not a checkpoint'),
    ],
)
def test_files_without_temperatures_are_named(tmp_path, content, message):
    path = tmp_path / 'x.pth'
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ValueError, match=rf'x\.pth {message}'):
        read_temperatures(path)


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 40).astype(float)
    y = x + rng.normal(0, 3, 40)
    found = _rank_correlation(x, y, permutations=4000)
    expected = spearmanr(x, y)
    assert found.rho == pytest.approx(expected.statistic, abs=1e-12)
    assert found.p_value == pytest.approx(expected.pvalue, rel=0.3, abs=2e-3)
    assert _rank_correlation(x, -y).rho == pytest.approx(-found.rho)


def test_p_value_is_that_of_all_permutations():
    x = np.array([1.0, 2, 3, 4, 5])
    y = np.array([0.2, 0.1, 0.4, 0.3, 0.5])
    rho = spearmanr(x, y).statistic
    others = [abs(spearmanr(x, y[list(p)]).statistic) for p in permutations(range(5))]
    exact = np.mean([o >= abs(rho) - 1e-9 for o in others])
    found = _rank_correlation(x, y)
    assert found.p_value == pytest.approx(exact, abs=0.01)
    assert _rank_correlation(x, y, seed=3) == _rank_correlation(x, y, seed=3)
    ten = np.arange(10.0)
    assert _rank_correlation(ten, ten, 999).p_value == pytest.approx(1e-3)


def test_a_constant_side_has_no_correlation():
    found = _rank_correlation(np.ones(4), np.arange(4.0))
    assert np.isnan(found.rho)
    assert np.isnan(found.p_value)
    assert 'not defined (constant), n = 4' in str(found)


def test_extremes_leave_unvisited_samples_out():
    tau = np.array([0.5, 0.1, 0.9, 0.3, 0.7], dtype=np.float32)
    visited = np.array([True, True, False, True, True])
    hot, cold = extreme_samples(tau, visited, 2)
    assert hot.tolist() == [4, 0]
    assert cold.tolist() == [1, 3]
    hot, cold = extreme_samples(tau, visited, 100)
    assert len(hot) == len(cold) == 2
    assert not set(hot) & set(cold)


def test_class_rows():
    labels = np.array([0] * 6 + [1] * 3 + [2])
    tau = np.array([8, 9, 7, 8, 9, 1, 4, 5, 3, 2], dtype=np.float32) / 10
    visited = np.ones(10, dtype=bool)
    visited[5] = False
    rows = class_temperatures(tau, visited, labels, 'abcd', num_extreme=3)
    assert [(r.name, r.count) for r in rows] == [('a', 5), ('b', 3), ('c', 1), ('d', 0)]
    assert rows[0].mean == pytest.approx(0.82)
    assert rows[1].std == pytest.approx(np.std([0.4, 0.5, 0.3]))
    assert rows[0].hot_share == pytest.approx(3 / 5)
    assert rows[1].cold_share == pytest.approx(2 / 3)
    assert rows[2].cold_share == 1
    assert np.isnan(rows[3].mean)
    found = frequency_correlation(rows)
    assert found.rho == pytest.approx(1)
    assert found.count == 3


def test_history_notes_quantiles_and_counts(tmp_path):
    rng = np.random.default_rng(0)
    readings = {step: rng.uniform(0.1, 0.1 * step, 50).astype(np.float32) for step in (2, 4, 8)}
    history = TemperatureHistory(0.05, 1.0, 10)
    history.add(1, np.empty(0, dtype=np.float32))
    for step, tau in readings.items():
        history.add(step, tau)
    assert history.steps == [2, 4, 8]
    for counts, quantiles, mean, tau in zip(
        history.counts, history.quantiles, history.means, readings.values()
    ):
        expected, _ = np.histogram(tau, np.linspace(0.05, 1, 11))
        assert counts.tolist() == expected.tolist()
        assert quantiles[0] == tau.min()
        assert quantiles[-1] == tau.max()
        assert mean == pytest.approx(tau.mean(), rel=1e-5)
    # A resumed run repeats what came after its checkpoint.
    again = TemperatureHistory.from_state(history.state_dict())
    again.add(4, readings[4])
    again.add(8, readings[8])
    assert again.state_dict() == history.state_dict()
    with history.write_csv(tmp_path / 'a/history.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert [row['step'] for row in rows] == ['2', '4', '8']
    assert float(rows[1]['q50']) == pytest.approx(np.median(readings[4]))
    bins = [int(v) for k, v in rows[2].items() if k.startswith('from_')]
    assert sum(bins) == 50


def test_what_leaves_the_range_is_counted_at_its_ends():
    history = TemperatureHistory(0.1, 0.2, 2)
    history.add(1, np.array([0.05, 0.12, 0.3], dtype=np.float32))
    assert history.counts[0].tolist() == [2, 1]
    with pytest.raises(ValueError, match='range, got 0.2 to 0.2'):
        TemperatureHistory(0.2, 0.2)
    with pytest.raises(ValueError, match='num_bins must be at least 1'):
        TemperatureHistory(0.1, 0.2, 0)
