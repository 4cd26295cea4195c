"""Records are whole or refused; the one writer of tables; times of functions in turn."""

import csv
import multiprocessing
import time

import numpy as np
import pytest

import timing
from mmrank.errors import UserError
from mmrank.experiments.records import append_rows, past_rows, read_rows, round_figure, write_rows
from mmrank.pictures.names import best_cells
from mmrank.pictures.tables import markdown_table, write_table

FIELDS = ('method', 'seed', 'step', 'settings', 'AP', 'mAP')
WHOLE = """method,seed,step,settings,AP,mAP
a,0,10,{},0.125,0.25
"b, c",0,10,"{""lr"": 1}",,0.5
"""
#: What damages a record, and words of the message.
DAMAGE = {
    'torn': (WHOLE.rstrip(), 'line 3 is torn', 'no end'),
    'torn in quotes': (WHOLE[: WHOLE.index('1}')], 'line 3 is torn'),
    'torn number': (WHOLE + 'a,1,10,{},0.3,0.3', 'line 4 is torn'),
    'few values': (WHOLE + 'a,1,10,{},0.3\n', 'line 4', 'not 6 values'),
    'nan': (WHOLE.replace('0.25', 'nan'), "line 2: mAP='nan' of 'a' is not finite"),
    'text': (WHOLE.replace('0.25', '0.2.5'), "line 2: mAP='0.2.5' of 'a' is not a number"),
    'seed': (WHOLE.replace('a,0', 'a,0.5'), "seed='0.5'"),
    'no seed': (WHOLE.replace('a,0', 'a,'), "seed='' of 'a' is empty"),
    'seed of two spellings': (WHOLE.replace('a,0', 'a,01'), "seed='01' of 'a' is not written as 1"),
    'blank': (WHOLE.replace('a,0', 'a ,0'), "method='a ' of 'a ' has blanks"),
    'stage': (
        WHOLE.replace('seed,', 'seed,stage,').replace('a,0', 'a,0,Final').replace('c",0', 'c",0,'),
        "stage='Final' of 'a' is none of",
    ),
    'no method': (WHOLE.replace('a,0', ',0'), "method='' of '' is empty"),
    'settings': (WHOLE.replace('{}', '{'), "settings='{'", 'not JSON'),
    'list': (WHOLE.replace('{}', '[]'), "settings='[]'", 'not a JSON object'),
    'double': (WHOLE + WHOLE.splitlines()[1] + '\n', 'line 4', 'a second time, after line 2'),
    'other figures': (WHOLE + 'a,0,10,"{""lr"": 2}",0.3,0.3\n', 'a second time, after line 2'),
    'a null in a name': (WHOLE.replace('method', 'me\0thod'), 'is not a record'),
    'header again': (WHOLE + WHOLE, "line 4: seed='seed'"),
    'column twice': (WHOLE.replace('AP,mAP', 'mAP,mAP'), 'is not a record'),
    'empty': ('', 'is not a record'),
    'null': (WHOLE.replace('0.25', '0.2\0'), 'line 2'),
    'bytes': (WHOLE.replace('a,0', '\udcff,0'), 'cannot be read'),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'record.csv'


@pytest.mark.parametrize('kind', DAMAGE)
def test_a_damaged_record_is_refused(path, kind):
    text, *words = DAMAGE[kind]
    path.write_bytes(text.encode(errors='surrogateescape'))
    for use in (read_rows, past_rows, lambda path: append_rows(path, [row('z')], FIELDS)):
        with pytest.raises(UserError, match='Fix: ') as caught:
            use(path)
        assert all(word in str(caught.value) for word in (str(path), *words)), caught.value
    assert path.read_bytes() == text.encode(errors='surrogateescape')


def row(method, seed=0, **more):
    return dict(method=method, seed=seed, step=10, settings='{}', AP=0.1, mAP=0.2) | more


def test_what_spreadsheets_and_editors_change_is_read(path):
    assert past_rows(path) == []
    with pytest.raises(UserError, match='No such file'):
        read_rows(path)
    path.write_bytes(b'\xef\xbb\xbf' + WHOLE.replace('\n', '\r\n').encode() + b'\r\n')
    first, second = read_rows(path)
    assert first == dict(zip(FIELDS, ('a', '0', '10', '{}', '0.125', '0.25')))
    assert (second['method'], second['AP']) == ('b, c', '')


def test_columns_go_by_their_names(path):
    path.write_text(WHOLE)
    append_rows(path, [row('z', other=1)], reversed(FIELDS))
    assert path.read_text() == WHOLE + 'z,0,10,{},0.1,0.2\n'


@pytest.mark.parametrize('fields', [FIELDS[:-1], (*FIELDS, 'AUC')])
def test_other_columns_are_refused(path, fields):
    path.write_text(WHOLE)
    for use in (past_rows, lambda path, fields: append_rows(path, [row('z', AUC=1)], fields)):
        with pytest.raises(UserError, match='other columns'):
            use(path, fields)
    assert path.read_text() == WHOLE


@pytest.mark.parametrize('bad', [dict(mAP=float('nan')), dict(seed=0, method='a')])
def test_all_new_rows_are_written_or_none(path, bad):
    path.write_text(WHOLE)
    with pytest.raises(UserError, match='Fix: '):
        append_rows(path, [row('y'), row('z') | bad], FIELDS)
    assert path.read_text() == WHOLE
    with pytest.raises(UserError, match='Fix: '):
        write_rows(path, [row('y'), row('y')], FIELDS)
    assert path.read_text() == WHOLE


def add(path, seeds):
    """Rows of some seeds, and of seed 0, which all processes add; how often that was refused."""
    refused = 0
    for seed in (*seeds, 0):
        try:
            append_rows(path, [row('a', seed), row('b', seed)], FIELDS)
        except UserError:
            refused += 1
    return refused


@pytest.mark.processes
def test_processes_neither_mix_nor_double_their_rows(path):
    with multiprocessing.get_context('spawn').Pool(3) as pool:
        refused = pool.starmap(add, [(path, range(k, 60, 3)) for k in (1, 2, 3)])
    assert sum(refused) == 2
    rows = read_rows(path)
    with path.open(newline='') as file:
        assert rows == list(csv.DictReader(file))
    assert sorted(int(x['seed']) for x in rows) == sorted([*range(60)] * 2)


def test_marks_alignment_and_empty_cells():
    lines = markdown_table(
        ['method', '', 'AP'],
        [['a', '', '01.50'], ['dog|wolf\r\nor fox', 'x', 0.123456]],
        best=[[False, False, True], [False] * 3],
        align='lrl',
    )
    assert lines == [
        '| method |  | AP |',
        '|---|---:|---|',
        # Text is not read as a number.
        '| a |  | **01.50** |',
        r'| dog\|wolf<br>or fox | x | 0.1235 |',  # a cell stays one cell
    ]


def test_numbers_are_rounded_in_markdown_alone(tmp_path):
    rows = [['é', 1 / 3, 2], ['x,y', 12345.6, 3]]
    markdown, table = write_table(
        ['name', 'ratio', 'n'], rows, tmp_path / 'new/a.b', 'Title', 'Note.'
    )
    assert markdown.read_text('utf-8') == (
        '# Title\n\nNote.\n\n| name | ratio | n |\n|---|---:|---:|\n'
        '| é | 0.3333 | 2 |\n| x,y | 1.235e+04 | 3 |\n'
    )
    assert table.name == 'a.b.csv'
    with table.open(newline='', encoding='utf-8') as file:
        header, *found = csv.reader(file)
    assert header == ['name', 'ratio', 'n']
    assert found == [[str(cell) for cell in row] for row in rows]


def test_no_cell_is_best_where_all_read_the_same():
    assert best_cells(['1.0', '1.0'], [1.01, 1.02]) == [False, False]
    nan = float('nan')
    assert best_cells(['n/a', '2.0', '1.0'], [nan, 2, 1]) == [0, 1, 0]


def test_ratios_are_those_of_one_turn():
    assert timing.median_ratio([3.0, 20.0, 5.0], [1.0, 10.0, 2.0]) == pytest.approx(2.5)


def test_figures_are_written_to_four_digits():
    values = (0.123456, np.float32(0.107), 12345.6, 12, 'a', True)
    assert [*map(round_figure, values)] == [0.1235, 0.107, 12350.0, 12, 'a', True]
    assert [*map(repr, map(round_figure, values[:2]))] == ['0.1235', '0.107']


def test_waiting_takes_wall_time_and_no_cpu_time(monkeypatch):
    monkeypatch.setattr(timing, 'TURN', 0.02)
    times = timing.both_times_in_turn({'sleep': lambda: time.sleep(0.03)}, 2)['sleep']
    assert min(times.wall) >= 0.03 > max(times.cpu)
