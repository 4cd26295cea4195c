"""Tables and pictures of a COCO benchmark, against figures by hand."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from run_records import run_record

from mmrank.apis.coco.box_evaluation import load_ground_truth
from mmrank.apis.coco.detections import (
    class_colours,
    draw_side_by_side,
    fitting_labels,
    matched_boxes,
    most_differing_images,
)
from mmrank.apis.coco.pr_curves import (
    PRCurves,
    most_differing_classes,
    plot_metric_bars,
    plot_pr_pages,
)
from mmrank.apis.coco.tables import (
    BenchmarkRow,
    describe_runs,
    rich_benchmark,
    table_cells,
    write_benchmark,
)

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


def test_bars_grow_with_models(is_drawn, tmp_path):
    rows = make_rows()
    small = plot_metric_bars(rows[:1], tmp_path / 'small.png')
    large = plot_metric_bars(rows * 4, tmp_path / 'large.png')
    assert is_drawn(small)
    assert is_drawn(large)
    with Image.open(small) as one, Image.open(large) as other:
        assert other.height > 2 * one.height


def test_classes_that_differ_come_first(evaluations):
    curves = {n: PRCurves.from_coco_eval(e) for n, e in evaluations.items()}
    names = most_differing_classes(curves, 99)
    counts = dict(zip(curves['good'].classes, curves['good'].num_objects))
    weighted = [
        abs(
            curves['good'].average_precision(0.5, name)
            - curves['poor'].average_precision(0.5, name)
        )
        * counts[name] ** 0.5
        for name in names
    ]
    assert weighted == sorted(weighted, reverse=True)
    assert weighted[0] > 0
    assert most_differing_classes(curves, 2) == names[:2]
    # A single model has no difference: the most frequent come first.
    alone = most_differing_classes({'good': curves['good']}, 99)
    assert [counts[n] for n in alone] == sorted(counts.values(), reverse=True)[: len(alone)]


@pytest.mark.slow
def test_curves_go_on_pages(evaluations, is_drawn, tmp_path):
    curves = {n: PRCurves.from_coco_eval(e) for n, e in evaluations.items()}
    one = plot_pr_pages(curves, tmp_path / 'one', [])
    assert [p.name for p in one] == ['pr_curves.png']
    classes = list(curves['good'].classes)
    pages = plot_pr_pages(curves, tmp_path / 'two', (classes * 3)[:13])
    assert [p.name for p in pages] == ['pr_curves.png', 'pr_curves_2.png']
    assert all(map(is_drawn, pages))
    with pytest.raises(ValueError, match="no class 'zebra'"):
        plot_pr_pages(curves, tmp_path, ['zebra'])


def test_matches_are_those_of_pycocotools(evaluations):
    """At IoU 0.5, where there is no crowd."""
    for evaluation in evaluations.values():
        truth = evaluation.cocoGt
        for image_id in truth.imgs:
            ours = matched_boxes(truth, evaluation.cocoDt, image_id)
            theirs = sum(
                int((e['dtMatches'][0] > 0).sum())
                for e in evaluation.evalImgs
                if e is not None
                and e['image_id'] == image_id
                and list(e['aRng']) == list(evaluation.params.areaRng[0])
            )
            assert sum(box.is_right for box in ours) == theirs


def test_images_that_differ_come_first(evaluations):
    good, poor = evaluations.values()
    least = (dict.fromkeys(good.cocoGt.cats, 0.4),) * 2
    chosen = most_differing_images(good, poor, least, 99)
    assert len(chosen) == len(good.cocoGt.imgs)
    sizes = [d.size for d in chosen]
    assert sizes == sorted(sizes, reverse=True)
    first = chosen[0]
    for evaluation, right, wrong in zip((good, poor), first.right, first.wrong):
        boxes = matched_boxes(good.cocoGt, evaluation.cocoDt, first.image_id, least[0])
        assert sum(b.is_right for b in boxes) == right
        assert sum(not b.is_right for b in boxes) == wrong
    assert sizes[0] > 0
    same = most_differing_images(good, good, least, 3)
    assert [d.size for d in same] == [0, 0, 0]
    with pytest.raises(ValueError, match='number of images is 0'):
        most_differing_images(good, poor, least, 0)


def test_side_by_side_is_drawn(shapes, is_drawn, tmp_path):
    root, ann_file, _, models = shapes
    path, chosen = draw_side_by_side(
        models, ann_file, root / 'val', tmp_path / 'two.jpg', num_images=2
    )
    assert is_drawn(path)
    assert len(chosen) == 2
    with pytest.raises(ValueError, match='needs two models'):
        draw_side_by_side({'good': models['good']}, ann_file, root, Path('x.jpg'))


def test_colours_of_many_classes_are_spent_on_those_shown(evaluations):
    truth = evaluations['good'].cocoGt
    assert class_colours(truth, {1})[1] == class_colours(truth)[1]
    many = load_ground_truth(truth)
    cats, many.cats = many.cats, {i: {'name': str(i)} for i in range(80)}
    try:
        colours = class_colours(many, {3, 70})
    finally:
        many.cats = cats
    assert set(colours) == {3, 70}
    assert len(set(colours.values())) == 2


def test_labels_do_not_overlap():
    rng = np.random.default_rng(0)
    corners = [tuple(c) for c in rng.uniform(0, 200, (60, 2))]
    labels = ['person 0.5' if i % 7 else '' for i in range(60)]
    below = [i % 3 == 0 for i in range(60)]
    chosen = fitting_labels(corners, labels, 5, is_below=below)
    assert chosen[1]
    assert not chosen[0]
    assert 5 < sum(chosen) < 50
    # By painting them: no pixel belongs to two.
    canvas = np.zeros((300, 300), int)
    for (x, y), label, under, shown in zip(corners, labels, below, chosen):
        if shown:
            top = y + 20 if under else y + 20 - 7.5
            rows = slice(int(np.ceil(top)), int(top + 7.5))
            cols = slice(int(np.ceil(x)), int(x + 0.68 * 5 * len(label)))
            canvas[rows, cols] += 1
    assert canvas.max() == 1
    # Far apart, all fit.
    far = [(100 * i, 50) for i in range(5)]
    assert all(fitting_labels(far, ['a'] * 5, 5, is_below=[False] * 5))
