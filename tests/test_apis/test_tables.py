"""The one writer of tables."""

import csv

from mmrank.apis.common.names import best_cells
from mmrank.apis.common.tables import markdown_table, write_table


def test_a_cell_stays_one_cell():
    lines = markdown_table(['name', 'n'], [['dog|wolf\r\nor fox', 3]])
    assert lines[2:] == [r'| dog\|wolf<br>or fox | 3 |']


def test_marks_alignment_and_empty_cells():
    lines = markdown_table(
        ['method', '', 'AP'],
        [['a', '', '01.50'], ['b', 'x', 0.123456]],
        best=[[False, False, True], [False] * 3],
        align='lrl',
    )
    assert lines == [
        '| method |  | AP |',
        '|---|---:|---|',
        # Text is not read as a number.
        '| a |  | **01.50** |',
        '| b | x | 0.1235 |',
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
