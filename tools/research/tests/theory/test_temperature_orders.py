"""The test of class orders: figures, errors, and the tool as a whole."""

import csv
import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from theory.temperature_orders import OrderRuns, order_test

TOOL = Path(__file__).resolve().parents[2] / 'temperature_orders.py'
NAMES = ('cat', 'dog', 'frog', 'ship')


def made_up(effect, runs=6, classes=4, seed=0, noise=0.02):
    """Classes of different temperatures, times ``size ** effect``."""
    rng = np.random.default_rng(seed)
    sizes = 1000 * 0.3 ** np.arange(classes)
    counts = np.stack([rng.permutation(sizes) for _ in range(runs)]).round()
    logs = rng.normal(size=classes) + noise * rng.normal(size=(runs, classes))
    logs += effect * np.log10(counts) + rng.normal(size=(runs, 1))
    return OrderRuns(NAMES[:classes], counts, np.exp(logs))


def test_slope_is_that_of_a_regression():
    runs = made_up(0.1)
    rows, columns = np.indices(runs.counts.shape).reshape(2, -1)
    design = np.column_stack([np.log10(runs.counts).ravel(), np.eye(6)[rows], np.eye(4)[columns]])
    target = np.log(runs.temperatures).ravel()
    expected = np.linalg.lstsq(design, target, rcond=None)[0][0]
    found = order_test(runs, draws=500)
    assert found.slope == pytest.approx(expected)
    assert found.slope == pytest.approx(0.1, abs=0.03)
    assert found.p_value == pytest.approx(1 / 501)
    # However different the classes are.
    assert found.chance[1] < found.slope
    assert '+10.' in str(found) or '+11.' in str(found)


def test_p_value_is_that_of_all_orders():
    runs = made_up(0.02, runs=2, classes=3, seed=3)
    found = order_test(runs, draws=40_000)
    x, y = np.log10(runs.counts), np.log(runs.temperatures)
    slopes = []
    for dealt in itertools.product(*(itertools.permutations(row) for row in x)):
        centred = np.array(dealt)
        centred = centred - centred.mean(1, keepdims=True)
        centred = centred - centred.mean(0)
        square = (centred**2).sum()
        slopes.append((centred * y).sum() / square if square > 1e-9 else 0)
    exact = np.mean(np.abs(slopes) >= abs(found.slope) - 1e-9)
    assert 0.05 < exact < 0.95
    assert found.p_value == pytest.approx(exact, abs=0.01)


def test_no_effect_is_seldom_significant():
    p_values = [order_test(made_up(0, seed=seed), draws=300).p_value for seed in range(200)]
    share = np.mean(np.array(p_values) <= 0.1)
    assert 0.04 < share < 0.17


def test_what_cannot_be_distinguished_is_refused():
    runs = made_up(0.1)
    same = np.tile(runs.counts[:1], (6, 1))
    with pytest.raises(ValueError, match='order_seed'):
        order_test(OrderRuns(NAMES, same, runs.temperatures))
    with pytest.raises(ValueError, match='got 1 and 4'):
        order_test(OrderRuns(NAMES, same[:1], runs.temperatures[:1]))


def write_tables(folder, runs):
    paths = []
    for index, row in enumerate(zip(runs.counts, runs.temperatures)):
        paths.append(folder / f'classes_{index}.csv')
        with paths[-1].open('w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(['class', 'samples', 'mean', 'std', 'hot', 'cold'])
            # In any order.
            for k in np.roll(np.arange(4), index):
                writer.writerow([NAMES[k], int(row[0][k]), row[1][k], 0, 0, 0])
    return paths


@pytest.fixture
def start(run_script):
    """Runs the tool: status, output and errors."""
    return partial(run_script, TOOL)


def test_tool(tmp_path, start):
    runs = made_up(0.1)
    out = tmp_path / 'out'
    status, text, _ = start(*write_tables(tmp_path, runs), '--out-dir', out)
    assert status == 0
    assert str(order_test(runs)) in text
    with (out / 'orders.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert {row['class'] for row in rows} == set(NAMES)
    with Image.open(out / 'orders.png') as picture:
        assert min(picture.size) > 300


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('class,samples,mean\ncat,5,0.1\n', "has the classes ['cat']"),
        ('class,samples,mean\ncat,0,\n', "'cat' has 0 visited samples"),
        ('a,b\n1,2\n', 'is not a table of classes'),
        ('class,samples,mean\n', 'has no class'),
    ],
)
def test_bad_tables_are_reported(tmp_path, start, text, message):
    paths = write_tables(tmp_path, made_up(0))
    paths[2].write_text(text)
    status, _, errors = start(*paths, '--out-dir', tmp_path)
    assert status == 2
    assert message in errors
    assert str(paths[2]) in errors
