"""Curves, thresholds and drawings against pycocotools and by hand."""

import json

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from mmrank.apis.coco.box_evaluation import best_f1_thresholds, evaluate_boxes, summary
from mmrank.apis.coco.detections import draw_detections
from mmrank.apis.coco.pr_curves import PRCurves, comparison_rows, plot_pr_curves, show_comparison


def test_curves_are_those_of_pycocotools(evaluations):
    for evaluation in evaluations.values():
        curves = PRCurves.of(evaluation)
        stats = evaluation.stats
        assert curves.average_precision() == pytest.approx(stats[0])
        assert curves.average_precision(0.5) == pytest.approx(stats[1])
        assert curves.average_precision(0.75) == pytest.approx(stats[2])
        precision = evaluation.eval['precision']
        for index, name in enumerate(curves.classes):
            assert curves.curve(0.5, name) == pytest.approx(precision[0, :, index, 0, -1])
        expected = precision[..., 0, -1].mean(axis=(0, 1))
        assert curves.by_class() == pytest.approx(dict(zip(curves.classes, expected)))
        assert summary(evaluation)['mAP'] == pytest.approx(stats[0])


def test_perfect_and_absent_predictions(shapes):
    *_, truth, _ = shapes
    perfect = [
        {k: a[k] for k in ('image_id', 'category_id', 'bbox')} | {'score': 1.0}
        for a in truth.dataset['annotations']
    ]
    curves = PRCurves.of(evaluate_boxes(truth, perfect))
    assert curves.average_precision() == pytest.approx(1.0)
    nothing = evaluate_boxes(truth, [])
    assert summary(nothing)['mAP'] == 0
    assert set(best_f1_thresholds(nothing).values()) == {float('inf')}


def test_class_without_objects_is_left_out(shapes):
    *_, truth, models = shapes
    document = json.loads(json.dumps(truth.dataset))
    document['categories'].append({'id': 99, 'name': 'ghost'})
    from pycocotools.coco import COCO

    other = COCO()
    other.dataset = document
    other.createIndex()
    with_ghost = PRCurves.of(evaluate_boxes(other, models['good']))
    without = PRCurves.of(evaluate_boxes(truth, models['good']))
    assert np.isnan(with_ghost.average_precision(0.5, 'ghost'))
    assert with_ghost.average_precision() == pytest.approx(without.average_precision())


@pytest.mark.slow
def test_pictures_are_drawn(shapes, evaluations, is_drawn, tmp_path):
    root, *_ = shapes
    curves = {n: PRCurves.of(e) for n, e in evaluations.items()}
    assert is_drawn(plot_pr_curves(curves, tmp_path / 'deep' / 'pr.png'))
    path = draw_detections(evaluations, root / 'val', tmp_path / 'boxes.png', num_images=2)
    assert is_drawn(path)
    top = draw_detections(evaluations, root / 'val', tmp_path / 'top.png', num_images=1)
    assert is_drawn(top)
    with Image.open(path) as two, Image.open(top) as one:
        assert two.height > one.height


def test_drawing_says_what_is_wrong(evaluations, tmp_path):
    with pytest.raises(FileNotFoundError, match='image id'):
        draw_detections(evaluations, tmp_path, tmp_path / 'a.png')


def test_tables(evaluations, tmp_path):
    header, rows = comparison_rows(evaluations)
    assert header == ['metric (%)', 'good', 'poor']
    figures = {row[0]: row[1:] for row in rows}
    good = 100 * evaluations['good'].stats[0]
    assert figures['mAP'][0] == f'{good:.1f}'
    assert 'mAP disk' in figures
    console = Console(record=True)
    markdown, table = show_comparison(evaluations, tmp_path / 'results', 'Title', console)
    lines = markdown.read_text().splitlines()
    assert lines[0] == '# Title'
    assert len({line.count('|') for line in lines[2:]}) == 1
    assert len(table.read_text().splitlines()) == len(rows) + 1
    printed = console.export_text()
    assert all(cell in printed for row in rows for cell in row)
