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


def test_an_overview_of_a_method_that_is_not_there_is_refused(make):
    overview = '<!-- overview -->\n<!-- end of overview -->\n'
    with pytest.raises(UserError, match="no ours='x'"):
        make(f'<!-- record: made mAP title=Far ours=x -->\n{END}{overview}')


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
