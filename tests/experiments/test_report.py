"""Statistics compared with scipy and by hand, and what states them: reports, pictures, forests."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from scipy import stats

from mmrank.cli.draw import seeds
from mmrank.errors import UserError
from mmrank.experiments.many_sets import compare_sets, difference_rows, mean_rows, read_sets
from mmrank.experiments.plan import Comparison, Method
from mmrank.experiments.records import by_setting, read_final_rows, read_values
from mmrank.experiments.report import report
from mmrank.experiments.runs import Outcome
from mmrank.experiments.statistics import compare_paired
from mmrank.pictures.seeds import draw_box_plot

TOOL = 'analysis_tools/plot_seeds'
A = {0: 0.30, 1: 0.32, 2: 0.31, 3: 0.35}
B = {0: 0.38, 1: 0.37, 2: 0.36, 3: 0.41}
FACTS = {'step': 90, 'commit': 'abc', 'seconds': 1.5}


@pytest.fixture
def plan(tmp_path):
    """Three methods, two metrics, four seeds."""
    config = tmp_path / 'a.py'
    config.write_text('x = 1\n')
    methods = tuple(Method(name, str(config)) for name in 'abc')
    return Comparison(tmp_path, methods, (0, 1, 2, 3), ('acc', 'time'), 'a')


def make_outcomes(plan, failed=()):
    """Outcomes of the runs with known values, and what they leave."""
    table = {'a': A, 'b': B, 'c': dict.fromkeys(A, 0.1)}
    outcomes = []
    for run in plan.runs():
        if (run.method, run.seed) in failed:
            outcomes.append(Outcome(run, None, error='exit status 1\nlast line'))
            continue
        metrics = {'acc': table[run.method][run.seed], 'time': 1.0 + run.seed}
        outcomes.append(Outcome(run, metrics))
        run.folder.mkdir(parents=True)
        run.result_file.write_text(json.dumps(FACTS | {'metrics': {}}))
    return outcomes


@settings(max_examples=15)  # scipy's tests take half a second
@given(
    st.lists(
        st.tuples(st.floats(-1, 1, allow_subnormal=False), st.floats(-1, 1, allow_subnormal=False)),
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


BASE = {0: 0.5, 1: 0.3, 2: 0.7}  # with 0.1 more: rounded


def shifted(by):
    return {seed: value + by for seed, value in BASE.items()}


@pytest.mark.parametrize(
    ('ours', 'expected'),
    [
        ({}, {'pairs': 0}),
        ({0: 0.75}, {'pairs': 1, 'difference': 0.25}),
        # Seeds that one of both has count for nothing.
        ({0: 0.75, 1: 0.25, 9: 7.0}, {'pairs': 2, 'difference': 0.1}),
        (shifted(0), {'p_value': 1, 'ci_low': 0, 'ci_high': 0}),
        (shifted(0.25), {'p_value': 0, 'ci_low': 0.25, 'ci_high': 0.25}),
        (shifted(0.1), {'p_value': 0, 'ci_low': 0.1, 'ci_high': 0.1}),
    ],
)
def test_pairs_of_seeds(ours, expected):
    found = compare_paired(ours, BASE)
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert ('p_value' in found) == (found['pairs'] > 1)


def test_markdown(plan):
    outcomes = make_outcomes(plan, failed=[('c', 2)])
    text = report(Console(quiet=True), plan, outcomes, notes=['', 'A note.'])
    assert '| a | acc | 4 | 0.3200 ± 0.0216 | baseline |  |' in text
    assert '| b | acc | 4 | **0.3800 ± 0.0216** | +0.0600 [+0.0375, +0.0825] | 0.003 |' in text
    assert '| c | time | 3 | ' in text
    assert 'Some seeds are missing: see n, and the failures below.\n\nA note.\n' in text
    assert 'last line' in text


@pytest.mark.parametrize(('methods', 'metrics'), [(3, 1), (12, 4), (2, 7)])
def test_box_plot_is_as_wide_as_a_page(tmp_path, methods, metrics):
    keys = [f'retrieval/metric@{i}' for i in range(metrics)]
    values = {f'm{i}': {k: dict(A) for k in keys} for i in range(methods)}
    path = draw_box_plot(values, keys, tmp_path / 'plot.png')
    with Image.open(path) as picture:
        assert picture.width == 1600
        assert picture.height > 50 * methods * math.ceil(metrics / 3)
        assert np.asarray(picture.convert('L')).std() > 5  # not blank


def test_boxes_are_sorted_by_the_median(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(
        'matplotlib.axes.Axes.set_yticks', lambda _, places, texts: shown.append(texts)
    )
    values = {
        'low': {'x': {0: 1.0, 1: 2.0, 2: 9.0}},
        'none': {'x': {}},
        'high': {'x': {0: 3.0, 1: 3.0, 2: 3.0}},
    }
    draw_box_plot(values, ['x'], tmp_path / 'a.png')
    draw_box_plot(values, ['x'], tmp_path / 'a.png', labels=dict(high='H', low='L', none='N'))
    assert shown == [['high', 'low', 'none'], ['H', 'L', 'N']]


def test_a_box_has_its_colour(tmp_path):
    value = {'x': {0: 1.0, 1: 2.0, 2: 9.0}}
    draw_box_plot(
        {'a': value, 'b': value}, ['x'], tmp_path / 'a.png', colours=dict(a='#ff0000', b='#00ff00')
    )
    with Image.open(tmp_path / 'a.png') as picture:
        pixels = {*map(tuple, np.asarray(picture.convert('RGB')).reshape(-1, 3).tolist())}
    assert {(255, 0, 0), (0, 255, 0)} <= pixels


def test_box_plot_of_a_file(plan, run, tmp_path):
    report(Console(quiet=True), plan, make_outcomes(plan, failed=[('c', 3)]))
    runs = tmp_path / 'runs.csv'
    first, *others = read_final_rows(runs)
    assert {key: first[key] for key in FACTS} == {key: str(x) for key, x in FACTS.items()}
    assert len(others) == 10
    values = read_values(runs, ['acc'], scale=100)
    assert values['b'] == {'acc': pytest.approx({s: 100 * x for s, x in B.items()})}
    out = tmp_path / 'boxes.png'
    assert run(TOOL, runs, '--out', out) == f'Wrote {out}\n'
    assert out.is_file()
    errors = run(TOOL, runs, '--metrics', 'AP', status=2)
    assert 'no final run with AP. Fix: pass some of: acc, time' in errors


@pytest.fixture
def setting_runs(tmp_path):
    path = tmp_path / 'runs.csv'
    path.write_text(
        'stage,method,seed,settings,AP,AUROC\n'
        'tune,soprc-0.1,100,{},99,\n'
        'final,soprc-0.1,0,{},50.5,\n'
        'final,soprc-0.1,1,{},51.5,80\n'
        'final,soprc-0.25,0,{},52,\n'
        'final,smooth_ap_1e-1,0,{},40,\n'
    )
    return path


def test_runs_by_method_and_setting(setting_runs):
    values = read_values(setting_runs, ['AP'])
    assert by_setting(values, 'AP') == {
        'soprc': {0.1: [50.5, 51.5], 0.25: [52]},
        'smooth_ap': {0.1: [40]},
    }
    setting_runs.write_text(setting_runs.read_text().replace('soprc-0.25', 'soprc'))
    with pytest.raises(UserError, match="'soprc' has no value. Fix"):
        by_setting(read_values(setting_runs), 'AP')


# Gains of the sets: 4, 2, -3; the standard error of their mean is 3.606 / sqrt(3).
VALUES = {
    'cells': {'ours': [0.50, 0.52], 'theirs': [0.46, 0.48]},
    'cards': {'ours': [0.40, 0.44], 'theirs': [0.39, 0.41]},
    'eggs': {'ours': [0.70, 0.70], 'theirs': [0.72, 0.74]},
}


@pytest.fixture
def paths(tmp_path):
    for name, values in VALUES.items():
        rows = ['method,seed,settings,mAP']
        for method, own in values.items():
            rows += [f'{method},{seed},{{}},{value}' for seed, value in enumerate(own)]
        (tmp_path / name).mkdir()
        (tmp_path / name / 'runs.csv').write_text('\n'.join([*rows, '']))
    return sorted(map(str, tmp_path.glob('*/runs.csv')))


def test_means_and_intervals(paths):
    sets = read_sets(paths, scale=100)
    assert [*sets] == ['cards', 'cells', 'eggs']
    each, mean = compare_sets(sets, 'ours', 'mAP')
    assert each['theirs']['cells']['difference'] == pytest.approx(4)
    # Paired by seed: 1 and 3, whose mean has the standard error 1.
    assert each['theirs']['cards']['ci_high'] == pytest.approx(2 + 12.706, abs=1e-3)
    assert mean['theirs']['difference'] == pytest.approx(1)
    error = np.std([4, 2, -3], ddof=1) / np.sqrt(3)
    assert mean['theirs']['ci_low'] == pytest.approx(1 - 4.3027 * error, abs=1e-3)
    assert mean_rows(sets, 'mAP')[-1] == ['mean', '54.3', '53.3']
    ((_, shown, median, ahead, worst),) = difference_rows(each, mean)
    assert shown.startswith('+1.00 [-7.9')
    assert [median, ahead, worst] == ['+2.00', '2 of 3, p = 1', 'eggs -3.0']


def test_the_mean_is_paired_by_seed(paths):
    sets = read_sets(paths, scale=100)
    del sets['cells']['theirs']['mAP'][1]
    _, mean = compare_sets(sets, 'ours', 'mAP')
    # 4 of the seed that both have, not 51 - 46.
    assert mean['theirs']['difference'] == pytest.approx((4 + 2 - 3) / 3)
    sets['cells']['theirs']['mAP'].clear()
    with pytest.raises(UserError, match='set cells has no seed with mAP of both ours and theirs'):
        compare_sets(sets, 'ours', 'mAP')
    with pytest.raises(UserError, match="no method 'us'"):
        compare_sets(sets, 'us', 'mAP')
    with pytest.raises(UserError, match="second set 'cards'"):
        read_sets([*paths, paths[0]])
    Path(paths[0]).write_text('method,seed,settings,mAP\nours,0,{},0.5\n')
    with pytest.raises(UserError, match='sets of one plan'):
        read_sets(paths)


def test_forest(paths, tmp_path, monkeypatch, capsys):
    out = tmp_path / 'forest.png'
    words = ['seeds', *paths, '--scale', '100', '--forest', 'ours', '--out', str(out)]
    monkeypatch.setattr(sys, 'argv', words)
    seeds.main()
    assert '2 of 3' in capsys.readouterr().out
    with Image.open(out) as image:
        # The diamond of the mean is orange.
        assert np.array(image.convert('RGB')).reshape(-1, 3).tolist().count([213, 94, 0]) > 50


def test_command_of_a_setting(setting_runs, tmp_path, run):
    out = tmp_path / 'y.png'
    run(TOOL, setting_runs, '--metrics AP --setting rate --mark 0.14 --out', out)
    assert out.is_file()
