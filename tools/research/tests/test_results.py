"""Tables and pictures from records; temperatures of rare classes."""

from pathlib import Path

import numpy as np
import pytest

import results
from long_tail.temperature_orders import order_test
from mmrank.errors import UserError
from pages import blocks

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
    monkeypatch.setattr(blocks, 'RECORDS', tmp_path)
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


def test_sets_have_two_tables_a_picture_and_a_row(make, tmp_path):
    """Gains of 5, 1 and 3 points on three sets; the short overview has the mean over them."""
    (tmp_path / 'many').mkdir()
    for name, gain in {'cards': 0.05, 'cells': 0.01, 'eggs': 0.03}.items():
        rows = [f'ours,9,1,a,60,{{}},{0.2 + gain}', 'focal,9,1,a,60,{},0.2']
        head = 'method,seed,step,commit,seconds,settings,mAP'
        (tmp_path / 'many' / f'{name}.csv').write_text('\n'.join([head, *rows, '']))
    block = '<!-- sets: many mAP ours=ours task=boxes stock=focal forest=a/f.png{} -->\n{}'
    end = '<!-- end of sets -->\n'
    page = block.format('', end) + '<!-- overview: stock -->\n<!-- end of overview -->\n'
    assert 'f.png of other rows' in make(page)
    text = make(page, check=False)
    assert make(text) == text
    assert '| mean | 23.0 | 20.0 |' in text
    # The standard error is 2 / sqrt(3), the quantile of t 4.30.
    assert '| focal | +3.00 [-1.97, +7.97] | +3.00 | 3 of 3, p = 0.25 | cells +1.0 |' in text
    assert '6 trainings, 0.1 core-hours, commit a.' in text
    assert '| [boxes](page.md) | ours | mAP | focal | +3.00 [-1.97, +7.97] | level |' in text
    groups = block.format(' "groups=all: cards, cells, eggs; large: cards"', end)
    assert '| all | 3 | +3.00 [-1.97, +7.97] |\n| large | 1 | +5.00 |' in make(groups, check=False)
    (tmp_path / 'more').mkdir()
    (tmp_path / 'more' / 'cards.csv').write_text(f'{head}\nnew,9,1,a,60,{{}},0.26\n')
    both = make(f'<!-- sets: many+more mAP ours=new -->\n{end}', check=False)
    assert '| mean | 25.0 | 20.0 | 26.0 |' in both
    assert '3 trainings, ' in both
    make(page, check=False)
    (tmp_path / 'many' / 'cells.csv').unlink()
    assert 'f.png of other rows' in make(text)


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
    status, text, _ = run_script(TOOLS / 'long_tail/temperature_orders.py', *paths)
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
    status, _, errors = run_script(TOOLS / 'long_tail/temperature_orders.py', *paths)
    assert status == 2
    assert message in errors


def test_tool_of_weights(tmp_path, run_script):
    """Figure 2: p* is (0.8, 0.2) at rho 0.2, and even for equal ones."""
    status, text, _ = run_script(TOOLS / 'isogclr_weights.py', '--out-dir', tmp_path)
    assert status == 0
    assert 'h (0.0, -1.0), rho 0.2: weights 0.805 and 0.195, temperature 0.705' in text
    assert 'h (-0.5, -0.5), rho 0.2: weights 0.500 and 0.500, temperature 0.05' in text
    assert (tmp_path / 'two_negatives.png').stat().st_size > 5_000
