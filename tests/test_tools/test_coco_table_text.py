"""The table of a COCO benchmark, against figures by hand."""

import csv
import io

from rich.console import Console
from run_records import run_record

from detectors.evaluation import BenchmarkRow
from detectors.tables import describe_runs, rich_benchmark, table_cells, write_benchmark

NAN = float('nan')


def make_rows():
    """Three models; the last comes from a file."""
    names, classes = ('mAP', 'APs', 'APl'), ('cat', 'dog|wolf')
    figures = [(0.4, 0.1234, NAN), (0.3, 0.1229, NAN), (0.2, 0.05, NAN)]
    records = [run_record(test_size='-'), run_record(test_size='-', memory_bytes=None), None]
    return [
        BenchmarkRow(
            f'model [{letter}]', dict(zip(names, values)), dict(zip(classes, values[:2])), record
        )
        for letter, values, record in zip('abc', figures, records)
    ]


def test_cells_by_hand():
    header, cells, best = table_cells(make_rows())
    table = {key: [row[i] for row in cells] for i, key in enumerate(header)}
    # No size was recorded: no column.
    assert header == [
        'method',
        'loss',
        'backbone',
        'mAP',
        'APs',
        'APl',
        'img/s',
        'img/s with data',
        'memory (MiB)',
        'parameters (M)',
    ]
    assert table['mAP'] == ['40.0', '30.0', '20.0']
    assert table['APl'] == ['n/a', 'n/a', 'n/a']
    assert table['img/s'] == ['2.5', '2.5', '-']
    assert table['memory (MiB)'] == ['3', '-', '-']
    assert table['parameters (M)'] == ['1.50', '1.50', '-']
    marks = {key: [row[i] for row in best] for i, key in enumerate(header)}
    assert marks.pop('mAP') == [True, False, False]
    # 12.34 and 12.29 read the same, so both are best.
    assert marks.pop('APs') == [True, True, False]
    assert not any(sum(column) for column in marks.values())


def test_equal_models_have_no_best():
    row = make_rows()[0]
    assert not any(map(any, table_cells([row])[2]))
    assert not any(map(any, table_cells([row, row])[2]))


def test_files_are_whole(tmp_path):
    rows = make_rows()
    files = write_benchmark(rows, tmp_path / 'new', 'Title', ['A note.'])
    assert [f.name for f in files] == ['coco_table.md', 'coco_table.csv', 'classes.csv']
    text = files[0].read_text()
    assert '| **40.0** |' in text
    assert '* A note.' in text
    assert '| dog\\|wolf | **12.3** | **12.3** | 5.0 |' in text
    with files[1].open(newline='') as file:
        table = list(csv.DictReader(file))
    assert float(table[0]['APs']) == 0.1234
    assert float(table[0]['images_per_second']) == 2.54
    assert table[1]['memory_bytes'] == table[2]['images_per_second'] == ''
    with files[2].open(newline='') as file:
        classes = list(csv.reader(file))
    assert classes[0] == ['class', *(row.name for row in rows)]
    assert [float(x) for x in classes[2][1:]] == [0.1234, 0.1229, 0.05]


def test_console_shows_names_as_they_are():
    console = Console(file=io.StringIO(), width=100)
    console.print(rich_benchmark(make_rows()))
    shown = console.file.getvalue()
    assert 'model [a]' in shown
    assert '40.0' in shown


def test_unlike_measurements_are_kept_apart():
    one, other, none = make_rows()
    assert describe_runs([none]) == []
    (note,) = describe_runs([one, other, none])
    assert note.startswith('Speed: CPU, 2 threads, batches of 2')
    gpu = BenchmarkRow('g', {}, {}, run_record(device='GPU'))
    notes = describe_runs([one, gpu])
    assert [n.split(':')[0] for n in notes] == [one.name, 'g']
