"""Figures, curves and drawings of boxes, also of LVIS; what is refused, each with one error."""

import json
import sys

import numpy as np
import pytest
from noisy_boxes import as_lvis, make_document, make_predictions, write_json
from rich.console import Console

from mmrank.annotations.lvis import is_lvis
from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import (
    best_f1_thresholds,
    check_predictions,
    evaluate_boxes,
    evaluate_lvis,
    load_ground_truth,
    load_predictions,
    match_boxes,
    summary,
)
from mmrank.evaluation.coco_index import coco_index, fast_evaluator
from mmrank.evaluation.lvis_numpy import require_lvis
from mmrank.evaluation.operating_points import figures_of, matches_by_class
from mmrank.pictures.detections import _fitting_labels, _found_boxes, draw_detections
from mmrank.pictures.pr_curves import PRCurves, comparison_rows, show_comparison

GOOD = {'image_id': 1, 'category_id': 3, 'bbox': [0, 1, 20, 30], 'score': 0.5}


def check(*boxes):
    images = {1: dict(width=100, height=60), 2: {}}
    check_predictions(list(boxes), images, {3, 6})


def test_good_boxes_pass():
    check()
    check(GOOD, {**GOOD, 'bbox': [-5.0, 0.0, 0.0, 1.0], 'score': -3})
    # Beyond the image, but not as corners; of an image without a size.
    check({**GOOD, 'bbox': [60, 30, 90, 20]}, {**GOOD, 'image_id': 2, 'bbox': [0, 0, 999, 999]})


@pytest.mark.parametrize(
    ('field', 'value', 'match'),
    [
        ('image_id', 99, r'1 of the predictions have an image_id .* index 1: image_id 99'),
        ('category_id', 0, r'have a category_id .*category_id 0.*start at 0'),
        ('bbox', [0, 0, 10], 'four finite numbers'),
        ('bbox', None, 'four finite numbers'),
        ('bbox', [0, 0, 10, 'ten'], 'four finite numbers'),
        ('bbox', ['0', '0', '9', '9'], r"four finite.*index 1.*\['0', '0', '9', '9'\].*not texts"),
        ('bbox', '0123', 'four finite numbers'),
        ('bbox', [0, 0, 10, True], 'four finite numbers'),
        ('bbox', [0, 0, float('inf'), 1], 'four finite numbers'),
        ('score', '0.9', "index 1.*score '0.9'.*not texts"),
        ('score', None, 'index 1.*score None'),
        ('score', float('nan'), 'index 1.*score nan.*NaN comes from the model'),
        ('bbox', [50, 50, -10, 5], r'negative width.*\[50, 50, -10, 5\]'),
        ('bbox', [60, 30, 90, 50], r'1 of the .* beyond their images.*index 1: .*\[60, 30, 90, 50'),
    ],
)
def test_a_bad_field_is_named(field, value, match):
    with pytest.raises(UserError, match=match) as caught:
        check(GOOD, {**GOOD, field: value})
    assert 'Fix: ' in str(caught.value)


def test_fractions_of_an_image_are_refused():
    with pytest.raises(UserError, match='2 of the .* within one pixel.*Fix: multiply by the width'):
        check({**GOOD, 'bbox': [0.2, 0.1, 0.5, 0.5]}, {**GOOD, 'bbox': [0, 0, 1, 1]})


@pytest.mark.parametrize(
    ('text', 'match'),
    [
        (json.dumps({'images': []}), 'not the annotation file'),
        (json.dumps([GOOD, {'image_id': 1}]), 'keys image_id, category_id'),
        (json.dumps([GOOD, 3]), 'must be a list of objects'),
        (json.dumps([GOOD])[:-9], r'\d+ bytes\) is not JSON'),
        ('', r'0 bytes\) is not JSON'),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, match):
    path = tmp_path / 'x.bbox.json'
    path.write_text(text)
    with pytest.raises(UserError, match=match) as caught:
        load_predictions(path)
    assert 'x.bbox.json' in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'no\.json does not exist'):
        load_predictions(tmp_path / 'no.json')


@pytest.mark.parametrize('name', [lambda i: 2**63 - 1 - 5 * (50 - i), lambda i: f'{i:02}'])
def test_ids_of_images_may_be_large_or_texts(name):
    document = make_document(0, objects=2)
    boxes = make_predictions(document, 0, 0.2, 1)

    def evaluate():
        return match_boxes(coco_index(document), boxes)

    expected = evaluate()
    ids = {image['id']: name(i) for i, image in enumerate(document['images'])}
    names = ids.values()
    for image in document['images']:
        image['id'] = ids[image['id']]
    for entry in (*document['annotations'], *boxes):
        entry['image_id'] = ids[entry['image_id']]
    found = evaluate()
    assert np.array_equal(found.eval['precision'], expected.eval['precision'])
    assert found.stats[0] > 0.1
    by_class = PRCurves.of(expected).by_class()
    assert PRCurves.of(found).by_class() == pytest.approx(by_class, nan_ok=True)
    assert {x['image_id'] for x in found.cocoDt.dataset['annotations']} <= {*names}
    assert {*found.cocoDt.imgToAnns} <= {*found.cocoGt.imgs} == {*names}
    assert {x['image_id'] for x in found.evalImgs or () if x} <= {*names}


def test_boxes_are_left_as_they_are(tmp_path):
    document = make_document()
    boxes = make_predictions(document)
    path = write_json(tmp_path / 'ann.json', document)
    before = [dict(box) for box in boxes]
    match_boxes(load_ground_truth(path), boxes)
    assert boxes == before


def test_faster_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, 'faster_coco_eval', None)
    assert fast_evaluator().__module__ == 'pycocotools.cocoeval'


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
        classes = matches_by_class(evaluation).items()
        best = {key: figures_of(matches, ['f1'])['f1'][1] for key, matches in classes}
        assert best_f1_thresholds(evaluation) == best


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
    with_ghost = PRCurves.of(evaluate_boxes(coco_index(document), models['good']))
    without = PRCurves.of(evaluate_boxes(truth, models['good']))
    assert np.isnan(with_ghost.average_precision(0.5, 'ghost'))
    assert with_ghost.average_precision() == pytest.approx(without.average_precision())


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


def test_a_box_is_right_where_it_takes_an_object(tmp_path):
    document = make_document(0, images=1, classes=1, objects=3)
    truth = load_ground_truth(write_json(tmp_path / 'ann.json', document))
    one, *_ = [x for x in document['annotations'] if not x['iscrowd']]
    box = dict(image_id=1, category_id=3)
    boxes = [dict(box, bbox=one['bbox'], score=0.9), dict(box, bbox=one['bbox'], score=0.8)]
    (found,) = _found_boxes(evaluate_boxes(truth, boxes[1:] + boxes[:1]), [1]).values()
    # The second one finds nothing that is left, and the best F1 hides it.
    assert [(x.label, x.is_right) for x in found] == [('0.90', True)]


def test_labels_do_not_overlap():
    rng = np.random.default_rng(0)
    corners = [tuple(c) for c in rng.uniform(0, 200, (60, 2))]
    labels = ['person 0.5' if i % 7 else '' for i in range(60)]
    below = [i % 3 == 0 for i in range(60)]
    chosen = _fitting_labels(corners, labels, 5, is_below=below)
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
    assert all(_fitting_labels(far, ['a'] * 5, 5, is_below=[False] * 5))


@pytest.fixture
def lvis():
    """The package, or the reason why the test is skipped."""
    return pytest.importorskip('lvis', reason='the optional package lvis is not installed')


@pytest.fixture
def data(tmp_path):
    """Annotation file, document and predictions."""
    document = as_lvis(make_document(images=10, classes=6))
    path = write_json(tmp_path / 'lvis.json', document)
    return path, document, make_predictions(document)


def test_figures_are_those_of_mmdets_metric(lvis, data):
    metric_module = pytest.importorskip('mmdet.evaluation')
    path, document, boxes = data
    evaluation = evaluate_lvis(load_ground_truth(path), boxes)
    figures = summary(evaluation)

    metric = metric_module.LVISMetric(ann_file=str(path), classwise=True)
    names = [cat['name'] for cat in document['categories']]
    metric.dataset_meta = {'classes': names}
    labels = {cat['id']: i for i, cat in enumerate(document['categories'])}
    results = []
    for image in document['images']:
        own = [b for b in boxes if b['image_id'] == image['id']]
        corners = np.array([b['bbox'] for b in own])
        corners[:, 2:] += corners[:, :2]
        scores = np.array([b['score'] for b in own])
        own_labels = np.array([labels[b['category_id']] for b in own])
        found = dict(img_id=image['id'], bboxes=corners, scores=scores, labels=own_labels)
        results.append(({'img_id': image['id']}, found))
    theirs = metric.compute_metrics(results)
    # mmdet rounds to three digits.
    for name in ('AP50', 'AP75', 'APs', 'APm', 'APl', 'APr', 'APc', 'APf'):
        assert figures[name] == pytest.approx(theirs[f'bbox_{name}'], abs=6e-4), name
    assert figures['mAP'] == pytest.approx(theirs['bbox_AP'], abs=6e-4)
    assert 0.1 < figures['mAP'] < 0.99
    curves = PRCurves.of(evaluation)
    for name, ap in curves.by_class().items():
        assert ap == pytest.approx(theirs[f'{name}_precision'], abs=6e-4)
    # The figures are the area of the curves.
    assert curves.average_precision() == pytest.approx(figures['mAP'])
    assert curves.average_precision(0.5) == pytest.approx(figures['AP50'])
    assert sum(curves.num_objects) == len(document['annotations'])


def test_the_command_tells_lvis_from_coco(lvis, data, tmp_path, run):
    path, _, boxes = data
    few = write_json(tmp_path / 'few.bbox.json', [x for x in boxes if x['image_id'] > 2])
    tool = 'analysis_tools/plot_pr_curves'
    printed = run(tool, path, f'm={few}', '--out', tmp_path / 'pr.png')
    assert 'm: 2 of 10 images have no prediction' in printed
    table = (tmp_path / 'pr.md').read_text()
    assert table.startswith('# lvis.json, 10 images')
    for name in ('mAP', 'APr', 'AR300'):
        assert f'| {name} | ' in table
    assert (tmp_path / 'pr.png').is_file()


def test_annotations_without_what_images_lack_are_refused(lvis, data):
    path, document, _ = data
    del document['images'][3]['neg_category_ids']
    write_json(path, document)
    assert is_lvis(document)
    with pytest.raises(UserError, match=r'\(id 4\) has no .neg_category_ids'):
        evaluate_lvis(load_ground_truth(path), [])


def test_lvis_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, 'lvis', None)
    with pytest.raises(UserError, match='pip install lvis'):
        require_lvis()


def test_numpy_is_left_as_it_is(lvis):
    require_lvis()
    require_lvis()
    assert sys.modules['lvis.eval'].np.float is float
    assert sys.modules['lvis.eval'].np.zeros is np.zeros
    assert 'float' not in vars(np)
