"""Curves, thresholds and drawings against pycocotools and by hand."""

import json

import numpy as np
import pytest
from PIL import Image

from lib.coco.box_evaluation import (
    best_f1_thresholds,
    class_average_precision,
    evaluate_boxes,
    load_ground_truth,
    summary,
)
from lib.coco.detections import draw_detections
from lib.coco.pr_curves import PRCurves, plot_pr_curves
from lib.coco.tables import comparison_rows, rich_table, write_tables
from lib.synthetic.shapes_coco import ShapesSpec, write_shapes_coco


@pytest.fixture(scope='module')
def shapes(tmp_path_factory):
    """A small generated split: (folder, ground truth)."""
    root = tmp_path_factory.mktemp('shapes')
    spec = ShapesSpec(num_train=1, num_val=12, num_test=0, num_classes=5)
    files = write_shapes_coco(root, spec)
    return root, load_ground_truth(files['val'])


def noisy_predictions(truth, seed: int, jitter: float) -> list[dict]:
    """Ground-truth boxes moved about, plus false ones."""
    rng = np.random.default_rng(seed)
    boxes = []
    for ann in truth.dataset['annotations']:
        if rng.random() < 0.15:
            continue
        box = np.array(ann['bbox'], float)
        box[:2] += rng.normal(0, jitter, 2)
        boxes.append((ann['image_id'], ann['category_id'], box, 0.4))
        shift = np.array([rng.uniform(-80, 80), rng.uniform(-60, 60), 0, 0])
        boxes.append((ann['image_id'], ann['category_id'], box + shift, 0.0))
    return [
        {
            'image_id': image_id,
            'category_id': cat_id,
            'bbox': [float(v) for v in box],
            'score': float(bonus + rng.uniform(0, 0.6)),
        }
        for image_id, cat_id, box, bonus in boxes
    ]


@pytest.fixture(scope='module')
def models(shapes):
    _, truth = shapes
    return {
        name: evaluate_boxes(truth, noisy_predictions(truth, seed, jitter))
        for name, seed, jitter in (('good', 0, 0.5), ('poor', 1, 4.0))
    }


def test_curves_are_those_of_pycocotools(models):
    for evaluation in models.values():
        curves = PRCurves.from_coco_eval(evaluation)
        stats = evaluation.stats
        assert curves.average_precision() == pytest.approx(stats[0])
        assert curves.average_precision(0.5) == pytest.approx(stats[1])
        assert curves.average_precision(0.75) == pytest.approx(stats[2])
        precision = evaluation.eval['precision']
        for index, name in enumerate(curves.classes):
            assert curves.curve(0.5, name) == pytest.approx(precision[0, :, index, 0, -1])
        per_class = class_average_precision(evaluation)
        for name, ap in per_class.items():
            assert curves.average_precision(None, name) == pytest.approx(ap)
        assert summary(evaluation)['mAP'] == pytest.approx(stats[0])


def test_perfect_and_absent_predictions(shapes):
    _, truth = shapes
    perfect = [
        {k: a[k] for k in ('image_id', 'category_id', 'bbox')} | {'score': 1.0}
        for a in truth.dataset['annotations']
    ]
    curves = PRCurves.from_coco_eval(evaluate_boxes(truth, perfect))
    assert curves.average_precision() == pytest.approx(1.0)
    nothing = evaluate_boxes(truth, [])
    assert summary(nothing)['mAP'] == 0
    assert set(best_f1_thresholds(nothing).values()) == {float('inf')}


def test_class_without_objects_is_left_out(shapes):
    _, truth = shapes
    document = json.loads(json.dumps(truth.dataset))
    document['categories'].append({'id': 99, 'name': 'ghost'})
    from pycocotools.coco import COCO

    other = COCO()
    other.dataset = document
    other.createIndex()
    boxes = noisy_predictions(truth, 0, 0.5)
    with_ghost = PRCurves.from_coco_eval(evaluate_boxes(other, boxes))
    without = PRCurves.from_coco_eval(evaluate_boxes(truth, boxes))
    assert np.isnan(with_ghost.average_precision(0.5, 'ghost'))
    assert with_ghost.average_precision() == pytest.approx(without.average_precision())


def test_unknown_curve_is_refused(models):
    curves = PRCurves.from_coco_eval(models['good'])
    with pytest.raises(ValueError, match='no class'):
        curves.curve(name='zebra')
    with pytest.raises(ValueError, match='no IoU threshold'):
        curves.curve(iou=0.52)


def is_drawn(path) -> bool:
    """Whether the picture is large and not of one colour."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert('L'))
    return min(pixels.shape) > 200 and pixels.std() > 5


@pytest.mark.slow
def test_pictures_are_drawn(shapes, models, tmp_path):
    root, _ = shapes
    curves = {n: PRCurves.from_coco_eval(e) for n, e in models.items()}
    assert is_drawn(plot_pr_curves(curves, tmp_path / 'deep' / 'pr.png'))
    path = draw_detections(models, root / 'val', tmp_path / 'boxes.png', num_images=2)
    assert is_drawn(path)
    top = draw_detections(models, root / 'val', tmp_path / 'top.png', image_ids=[3], top_k=5)
    assert is_drawn(top)
    with Image.open(path) as two, Image.open(top) as one:
        assert two.height > one.height


def test_drawing_says_what_is_wrong(shapes, models, tmp_path):
    root, _ = shapes
    with pytest.raises(FileNotFoundError, match='image id'):
        draw_detections(models, tmp_path, tmp_path / 'a.png')
    with pytest.raises(ValueError, match='results of a model'):
        draw_detections({}, root, tmp_path / 'a.png')
    with pytest.raises(ValueError, match='curves of a model'):
        plot_pr_curves({}, tmp_path / 'a.png')


def test_tables(models, tmp_path):
    header, rows = comparison_rows(models)
    assert header == ['metric (%)', 'good', 'poor']
    figures = {row[0]: row[1:] for row in rows}
    good = 100 * models['good'].stats[0]
    assert figures['mAP'][0] == f'{good:.1f}'
    assert 'mAP disk' in figures
    markdown, table = write_tables(header, rows, tmp_path, 'Title')
    lines = markdown.read_text().splitlines()
    assert lines[0] == '# Title'
    assert len({line.count('|') for line in lines[2:]}) == 1
    assert len(table.read_text().splitlines()) == len(rows) + 1
    assert rich_table(header, rows, 'Title').row_count == len(rows)
    rows = [['APl', 'n/a', 'n/a']]
    assert rich_table(header, rows, 'Title').row_count == 1


def test_a_bar_in_the_name_of_a_class_keeps_its_row_whole(tmp_path):
    header, rows = ['metric (%)', 'a|b'], [['mAP dog|wolf', '12.3']]
    markdown, table = write_tables(header, rows, tmp_path, 'Title')
    assert markdown.read_text().splitlines()[2:] == [
        r'| metric (%) | a\|b |',
        '|---|---:|',
        r'| mAP dog\|wolf | 12.3 |',
    ]
    # CSV has no need of it.
    assert table.read_text() == 'metric (%),a|b\nmAP dog|wolf,12.3\n'
