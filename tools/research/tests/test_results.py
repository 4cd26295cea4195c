"""Tables and pictures from records; the frozen comparison; temperatures of rare classes."""

from pathlib import Path

import fast_and_slow
import numpy as np
import pytest
from fast_and_slow import Compared, chance_of

import results
from mmrank.errors import UserError
from temperature_orders import order_test

RECORD = """method,seed,step,commit,seconds,mAP
focal,0,10,abc,1800,0.10
focal,1,10,abc,1800,0.20
ours,0,10,abc,1800,0.15
ours,1,10,abc,1800,0.27
ours,1,5,abc,1800,0.01
"""
END = '<!-- end of record -->\n'


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Rewrite a page beside the record ``made``; give its text."""
    (tmp_path / 'made.csv').write_text(RECORD, encoding='utf-8')
    monkeypatch.setattr(results, 'RECORDS', tmp_path)
    page = tmp_path / 'page.md'

    def make(text, **options):
        page.write_text(text, encoding='utf-8')
        return results.rewritten(page, results.blocks_of([page]), **options)

    return make


def test_a_table_is_made_of_its_record(make):
    text = make(f'before\n<!-- record: made mAP baseline=focal -->\nold\n{END}after\n')
    assert text == make(text)
    assert 'old' not in text
    assert text.endswith(f'{END}after\n')
    first, second = (x for x in text.splitlines() if x.startswith(('| ours', '| focal')))
    # Differences 5 and 7 points: 6 +- 12.71 * sqrt(2) / sqrt(2), by the table of t.
    assert first == '| ours | 2 | **21.00 ± 8.49** | +6.00 [-6.71, +18.71] |'
    assert second == '| focal | 2 | 15.00 ± 7.07 |  |'
    assert '4 trainings, 2.0 core-hours, commit abc; 2 pairs' in text
    assert '| 0.15 ± 0.07 |' in make(f'<!-- record: made mAP scale=1 -->\n{END}')


def test_differences_that_several_comparisons_leave(make, tmp_path):
    """P of 0.0001, 0.035 and 0.5 by scipy's t test beside 0.05/3, 0.05/2 and 0.05."""
    gaps = {'far': (9, 10, 11, 10), 'near': (1, 4, 2, 4), 'level': (-2, 1, 3, 1)}
    rows = [f'base,{seed},1,a,1,{{}},final,0.2' for seed in range(4)]
    for name, own in gaps.items():
        rows += [f'{name},{i},1,a,1,{{}},final,{0.2 + gap / 100}' for i, gap in enumerate(own)]
    rows += ['base,9,1,a,1,{},tune,0.9', 'base,0,9,a,,{},curve,0.9']
    head = 'method,seed,step,commit,seconds,settings,stage,mAP'
    (tmp_path / 'made.csv').write_text('\n'.join([head, *rows]) + '\n')
    text = make(
        f'<!-- record: made mAP title=Far ours=far -->\n{END}'
        f'<!-- record: made mAP title=Level ours=level -->\n{END}'
        f'<!-- record: made mAP title=Behind ours=level peer=far -->\n{END}'
        '<!-- overview -->\n<!-- end of overview -->\n'
        '<!-- overview: other -->\n<!-- end of overview -->\n'
    )
    last = {line.split(' | ')[0]: line.split(' | ')[-1] for line in text.split(END)[0].split('\n')}
    assert last['| far'].startswith('**+10.00')
    assert last['| near'].startswith('+2.75 [+0.36')
    assert '3 comparisons' in text
    assert '1 trials to tune each' in text
    assert '17 trainings on record, 0.0 core-hours.' in text
    shown = [line for line in text.splitlines() if '](page.md)' in line]
    assert [line.split()[-2] for line in shown] == ['ahead', 'level', 'behind']
    assert '| far | 4 | mAP | 30.00 ± 0.82 | base | 20.00 ± 0.00 | +10.00 [+8.70' in shown[0]
    with pytest.raises(UserError, match="no ours='x'"):
        make(text.replace('ours=far', 'ours=x'))


def test_each_method_has_its_own_baseline(make, tmp_path):
    """Two metrics with differences: those of the same loss, each column corrected apart."""
    means = {'a': (10, 50), "a, 'auto'": (12, 48), 'b': (30, 20), 'b, x, y': (31, 24)}
    rows = [
        f'"{name}",{seed},1,a,1,{rare / 100 + seed / 1000},{rest / 100 + seed / 1000}'
        for name, (rare, rest) in means.items()
        for seed in range(3)
    ]
    rows[-1] += '1'
    rows[5] += '9'
    head = 'method,seed,step,commit,seconds,rare,mAP'
    (tmp_path / 'made.csv').write_text('\n'.join([head, *rows]) + '\n')
    text = make(f'<!-- record: made rare mAP baseline=own differences=2 -->\n{END}')
    cells = {x.split(' | ')[0][2:]: x.split(' | ')[-2:] for x in text.split('\n') if ' | ' in x}
    assert 'compared with the same loss alone' in cells[''][0]
    assert [x.split()[0].strip('*|') for x in cells["a, 'auto'"]] == ['+2.00', '-1.97']
    assert [x.split()[0].strip('*|') for x in cells['b, x, y']] == ['+1.00', '+4.00']
    assert cells['a'][0] == ''
    assert '2 comparisons' in text


@pytest.mark.parametrize('kind', ['boxes', 'curves'])
def test_a_picture_is_of_its_record(make, tmp_path, kind, monkeypatch):
    """It is drawn when its rows or names are others; the check says so and draws nothing."""
    page = f'<!-- record: made mAP {kind}=a/b.png -->\n{END}'
    assert 'b.png of other rows' in make(page)
    text = make(page, check=False)
    assert make(text) == text
    with monkeypatch.context() as patch:
        patch.setattr(results, 'LOOKS', results.LOOKS[:1])
        assert 'b.png of other rows' in make(text)
    (tmp_path / 'made.csv').write_text(RECORD.replace('0.27', '0.28'))
    assert 'b.png of other rows' in make(text)


@pytest.mark.parametrize(
    ('block', 'change'),
    [
        ('other mAP', {}),
        ('made AP50', {}),
        ('made mAP step=7', {}),
        ('made mAP step=x', {}),
        ('made mAP baseline=none', {}),
        ('made', {}),
        ('made mAP', {'0.27': ''}),
        ('made mAP', {RECORD.partition('\n')[2]: ''}),
        ('made mAP', {',10,abc': ',,abc', ',5,abc': ',,abc'}),
        ('made mAP seconds', {'1800': ''}),
        ('made mAP baseline=focal', {'0.10': '', '0.20': ''}),
    ],
)
def test_what_no_record_has_is_refused(make, tmp_path, block, change):
    text = RECORD
    for old, new in change.items():
        text = text.replace(old, new)
    (tmp_path / 'made.csv').write_text(text)
    with pytest.raises(UserError, match='Fix: '):
        make(f'<!-- record: {block} -->\n{END}')


def test_correlation_and_what_following_costs():
    slow = dict(a={'1': 10.0, '2': 12.0}, b={'1': 20.0, '2': 20.0}, c={'1': 15.0, '2': 15.0})
    fast = dict(a={'1': 1.0, '2': 1.5}, b={'1': 2.0, '2': 2.9}, c={'1': 3.0, '2': 3.5})
    item = Compared('x', 'a', 'b', slow, fast)
    # b is ours, and level with c.
    assert item.choices() == ('b', 'c', 'a', 'b')
    assert item._replace(ours='a').followed == 'c'
    assert item.correlations() == (pytest.approx(0.5), pytest.approx(1 / 3))
    assert [item.lost(name) for name in ('c', 'a', 'b')] == [5.0, 9.0, 0.0]


def test_the_chance_of_an_agreement_by_luck():
    assert chance_of(1.0, [3]) == pytest.approx(1 / 6)
    assert chance_of(1.0, [3, 4]) == pytest.approx(1 / 6 / 24)
    assert chance_of(-1.0, [3] * 3) == 1
    assert chance_of(0.75, [3, 3]) == pytest.approx(5 / 36)  # 1 and 1, 1 and 0.5 twice each


def test_the_table_has_a_row_for_each_set_that_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_and_slow, 'RECORDS', tmp_path)
    for name, step in (('real_heads_cards', 0.1), ('frozen_heads_cards', 0.2)):
        lines = ['method,seed,step,commit,seconds,settings,coco/bbox_mAP']
        methods = ('focal', 'graded_ap_0.6', 'quality_focal_2', 'rank_sort_0.6')
        for place, method in enumerate(methods):
            for seed in (100, 101):
                value = 0.3 + step * place + 0.01 * (seed - 100) * place
                lines.append(f'{method},{seed},9,abc,1,{{}},{value}')
        (tmp_path / f'{name}.csv').write_text('\n'.join(lines) + '\n')
    text = fast_and_slow.table()
    (row,) = [line for line in text.splitlines() if 'playing cards' in line]
    assert '+1.0 (+1.0)' in row
    assert 'Rank & Sort, weight 0.6 61.50, quality focal, weight 2 51.00' in row
    assert '+31.50 [' in row
    assert 'ATSS (2 seeds)' in row
    assert 'in 4% of all cases' in text


TOOLS = Path(__file__).parents[1]
NAMES = ('cat', 'dog', 'frog', 'ship')


def made_up(effect, runs=6, classes=4, seed=0, noise=0.02):
    """Classes of different temperatures, times ``size ** effect``."""
    rng = np.random.default_rng(seed)
    sizes = 1000 * 0.3 ** np.arange(classes)
    counts = np.stack([rng.permutation(sizes) for _ in range(runs)]).round()
    logs = rng.normal(size=classes) + noise * rng.normal(size=(runs, classes))
    logs += effect * np.log10(counts) + rng.normal(size=(runs, 1))
    return counts, np.exp(logs)


def test_slope_is_that_of_a_regression():
    counts, temperatures = made_up(0.1)
    rows, columns = np.indices(counts.shape).reshape(2, -1)
    design = np.column_stack([np.log10(counts).ravel(), np.eye(6)[rows], np.eye(4)[columns]])
    expected = np.linalg.lstsq(design, np.log(temperatures).ravel(), rcond=None)[0][0]
    found = order_test(counts, temperatures, draws=500)
    assert found.slope == pytest.approx(expected)
    assert found.slope == pytest.approx(0.1, abs=0.03)
    assert found.p_value == pytest.approx(1 / 501)
    # However different the classes are.
    assert found.high < found.slope


def write_tables(folder, counts, temperatures):
    paths = []
    for index, (sizes, means) in enumerate(zip(counts, temperatures)):
        paths.append(folder / f'classes_{index}.csv')
        # In any order.
        order = np.roll(np.arange(4), index)
        rows = [f'{NAMES[k]},{int(sizes[k])},{means[k]}\n' for k in order]
        paths[-1].write_text('class,samples,mean\n' + ''.join(rows))
    return paths


def test_tool_of_orders(tmp_path, run_script):
    counts, temperatures = made_up(0.1)
    paths = write_tables(tmp_path, counts, temperatures)
    status, text, _ = run_script(TOOLS / 'temperature_orders.py', *paths)
    assert status == 0
    slope = 100 * np.expm1(order_test(counts, temperatures).slope)
    assert f'{slope:+.1f} % temperature' in text
    assert '6 orders of 4 classes' in text


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('class,samples,mean\ncat,5,0.1\n', "has the classes ['cat']"),
        ('class,samples,mean\ncat,0,\n', "'cat' has 0 visited samples"),
        ('a,b\n1,2\n', 'is not a table of classes'),
        ('class,samples,mean\n', 'has no class'),
        (None, 'order_seed'),
    ],
)
def test_bad_tables_are_reported(tmp_path, run_script, text, message):
    counts, temperatures = made_up(0)
    if text is None:
        counts = np.tile(counts[:1], (6, 1))
    paths = write_tables(tmp_path, counts, temperatures)
    if text is not None:
        paths[2].write_text(text)
    status, _, errors = run_script(TOOLS / 'temperature_orders.py', *paths)
    assert status == 2
    assert message in errors


def test_tool_of_weights(tmp_path, run_script):
    """Figure 2: p* is (0.8, 0.2) at rho 0.2, and even for equal ones."""
    status, text, _ = run_script(TOOLS / 'isogclr_weights.py', '--out-dir', tmp_path)
    assert status == 0
    assert 'h (0.0, -1.0), rho 0.2: weights 0.805 and 0.195, temperature 0.705' in text
    assert 'h (-0.5, -0.5), rho 0.2: weights 0.500 and 0.500, temperature 0.05' in text
    assert (tmp_path / 'two_negatives.png').stat().st_size > 5_000
