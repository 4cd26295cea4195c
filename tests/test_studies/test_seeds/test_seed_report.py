"""Statistics against scipy and by hand; the report that states them."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from mmrank.studies.seeds.box_plot import draw_box_plot
from mmrank.studies.seeds.outcome import Outcome
from mmrank.studies.seeds.plan_file import parse_plan
from mmrank.studies.seeds.report import write_csv, write_markdown
from mmrank.studies.seeds.statistics import (
    collect_values,
    compare_paired,
    summarise,
)

A = {0: 0.30, 1: 0.32, 2: 0.31, 3: 0.35}
B = {0: 0.38, 1: 0.37, 2: 0.36, 3: 0.41}


@pytest.fixture
def plan(tmp_path):
    """Three methods, two metrics, four seeds."""
    config = tmp_path / 'a.py'
    config.write_text('x = 1\n')
    return parse_plan(
        {
            'out_dir': str(tmp_path),
            'seeds': [0, 1, 2, 3],
            'metrics': ['acc', 'time'],
            'lower_better': ['time'],
            'methods': [
                {'name': name, 'config': str(config)} for name in 'abc'
            ],
        }
    )


def make_outcomes(plan, failed=()):
    """Outcomes of the final runs with known values."""
    table = {'a': A, 'b': B, 'c': dict.fromkeys(A, 0.1)}
    return [
        Outcome(run, None, error='exit status 1\nlast line')
        if (run.method, run.seed) in failed
        else Outcome(
            run, {'acc': table[run.method][run.seed], 'time': 1.0 + run.seed}
        )
        for run in plan.final_runs()
    ]


@given(
    st.lists(
        st.tuples(
            st.floats(-1, 1, allow_subnormal=False),
            st.floats(-1, 1, allow_subnormal=False),
        ),
        min_size=2,
        max_size=12,
    )
)
def test_comparison_equals_scipy(pairs):
    ours, theirs = np.array(pairs).T
    assume(np.std(ours - theirs) > 1e-6)
    made = compare_paired(dict(enumerate(ours)), dict(enumerate(theirs)))
    test = stats.ttest_rel(ours, theirs)
    interval = test.confidence_interval(0.95)
    assert made['p_value'] == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
    assert made['ci_low'] == pytest.approx(interval.low, rel=1e-6, abs=1e-9)
    assert made['ci_high'] == pytest.approx(interval.high, rel=1e-6, abs=1e-9)
    assert made['difference'] == pytest.approx((ours - theirs).mean())
    assert ('p_wilcoxon' in made) == (len(pairs) >= 6)


def test_comparison_by_hand():
    # Differences 8, 5, 5, 6 (in %): mean 6, sd sqrt(2), t(0.975, 3) = 3.1824.
    made = compare_paired(B, A)
    half = 3.182446 * math.sqrt(2) / 2 / 100
    assert made['pairs'] == 4
    assert made['difference'] == pytest.approx(0.06)
    assert made['ci_low'] == pytest.approx(0.06 - half, rel=1e-5)
    assert made['ci_high'] == pytest.approx(0.06 + half, rel=1e-5)


def test_only_common_seeds_are_paired():
    made = compare_paired({1: 1.0, 2: 2.0, 9: 100.0}, {1: 0.5, 2: 1.0, 3: 7.0})
    assert made['pairs'] == 2
    assert made['difference'] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ('ours', 'expected'),
    [
        ({}, {'pairs': 0}),
        ({0: 0.5}, {'pairs': 1, 'difference': pytest.approx(0.2)}),
    ],
)
def test_too_few_pairs_have_no_test(ours, expected):
    assert compare_paired(ours, A) == expected


@pytest.mark.parametrize(('shift', 'p_value'), [(0.0, 1.0), (0.25, 0.0)])
def test_equal_differences(shift, p_value):
    base = {0: 0.5, 1: 0.25, 2: 1.0}
    made = compare_paired({s: v + shift for s, v in base.items()}, base)
    assert made['p_value'] == p_value
    assert made['ci_low'] == made['ci_high'] == shift


def test_rounding_is_no_spread():
    base = {0: 0.1, 1: 0.3, 2: 0.7}
    made = compare_paired({s: v + 0.1 for s, v in base.items()}, base)
    assert made['p_value'] == 0.0
    assert made['ci_low'] == made['ci_high'] == pytest.approx(0.1)


def test_summary(plan):
    cells = summarise(plan, collect_values(plan, make_outcomes(plan)))
    assert [(c.method, c.metric) for c in cells] == [
        (method, metric) for method in 'abc' for metric in ('acc', 'time')
    ]
    assert cells[0].mean == pytest.approx(0.32)
    assert cells[0].std == pytest.approx(math.sqrt(0.0014 / 3))
    assert cells[0].pairs == 0
    assert cells[2].difference == pytest.approx(0.06)


def test_markdown(plan):
    outcomes = make_outcomes(plan, failed=[('c', 2)])
    cells = summarise(plan, collect_values(plan, outcomes))
    failures = [outcome for outcome in outcomes if outcome.error]
    tuning = [
        {
            'method': 'b',
            'choice': {'optim.lr': '1e-4'},
            'n': 2,
            'mean': 0.5,
            'chosen': True,
            'at_edge': True,
        }
    ]
    text = write_markdown(plan, cells, tuning=tuning, failures=failures)
    assert '| a | acc ↑ | 4 | 0.3200 ± 0.0216 | baseline |  |' in text
    assert (
        '| b | acc ↑ | 4 | **0.3800 ± 0.0216** '
        '| +0.0600 [+0.0375, +0.0825] | 0.003 |' in text
    )
    assert '| c | time ↓ | 3 | ' in text
    assert '| b | lr=1e-4 | 2 | 0.5000 | chosen, at the edge' in text
    assert 'last line' in text
    assert 'Some seeds are missing' in text


def test_scale(plan, tmp_path):
    from dataclasses import replace

    plan = replace(plan, scale=100.0)
    cells = summarise(plan, collect_values(plan, make_outcomes(plan)))
    assert '32.00 ± 2.16' in write_markdown(plan, cells)


def test_csv(plan, tmp_path):
    cells = summarise(plan, collect_values(plan, make_outcomes(plan)))
    with write_csv(cells, tmp_path / 'summary.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert float(rows[2]['difference']) == pytest.approx(0.06)
    assert math.isnan(float(rows[0]['p_value']))


@pytest.mark.parametrize('failed', [(), [('c', s) for s in range(4)]])
def test_box_plot(plan, tmp_path, failed):
    values = collect_values(plan, make_outcomes(plan, failed))
    draw_box_plot(plan, values, tmp_path / 'plot.png')
    assert (tmp_path / 'plot.png').read_bytes()[:4] == b'\x89PNG'
    from matplotlib.image import imread

    picture = imread(tmp_path / 'plot.png')[..., :3]
    assert picture.shape[0] > 300
    assert picture.std() > 0.02  # not blank


@pytest.mark.parametrize(
    ('methods', 'metrics', 'widest'),
    [(3, 1, 800), (12, 4, 1300), (2, 7, 1800)],
)
def test_box_plot_stays_readable(plan, tmp_path, methods, metrics, widest):
    """Panels wrap, and no method is added to the width."""
    from matplotlib.image import imread

    plan = replace(
        plan,
        methods=tuple(
            replace(plan.methods[0], name=f'a_method_{i}')
            for i in range(methods)
        ),
        metrics=tuple(f'retrieval/metric@{i}' for i in range(metrics)),
    )
    values = {m.name: {k: dict(A) for k in plan.metrics} for m in plan.methods}
    draw_box_plot(plan, values, tmp_path / 'plot.png')
    height, width, _ = imread(tmp_path / 'plot.png').shape
    assert 300 < width < widest
    assert height > 40 * methods * math.ceil(metrics / 3)
