"""Figures of predicted boxes; files that must be refused, each with one clear error."""

import json
import sys

import numpy as np
import pytest
from noisy_boxes import make_document, make_predictions, write_json

from mmrank.apis.coco.box_evaluation import (
    best_f1_thresholds,
    check_predictions,
    class_matches,
    evaluate_boxes,
    load_ground_truth,
    load_predictions,
    match_boxes,
    summary,
)
from mmrank.apis.coco.pr_curves import PRCurves
from mmrank.errors import UserError
from mmrank.evaluation.coco_index import PYCOCOTOOLS, coco_index, fast_evaluator

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
        ('score', '0.9', 'index 1.*score 0.9.*not texts'),
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


def test_best_f1_by_brute_force(tmp_path):
    document = make_document(0, objects=5)
    truth = load_ground_truth(write_json(tmp_path / 'ann.json', document))
    evaluation = evaluate_boxes(truth, make_predictions(document, 0, 0.2, 4))
    thresholds = best_f1_thresholds(evaluation)
    boxes = evaluation.cocoDt.dataset['annotations']

    def f1(cat_id, threshold):
        kept = [b for b in boxes if b['category_id'] != cat_id or b['score'] >= threshold]
        images = [
            e
            for e in evaluate_boxes(truth, kept).evalImgs
            if e is not None and e['category_id'] == cat_id and e['aRng'] == [0, 1e10]
        ]
        counted = [~np.asarray(e['dtIgnore'][0], bool) for e in images]
        hits = sum((e['dtMatches'][0][own] > 0).sum() for e, own in zip(images, counted))
        shown = sum(own.sum() for own in counted)
        objects = sum((np.asarray(e['gtIgnore']) == 0).sum() for e in images)
        return 2 * hits / (shown + objects)

    cat_id = truth.getCatIds()[0]
    scores = [b['score'] for b in boxes if b['category_id'] == cat_id]
    best = max(f1(cat_id, s) for s in scores)
    assert f1(cat_id, thresholds[cat_id]) == pytest.approx(best)


@pytest.mark.parametrize('first', [0, -3, 'a'])
def test_ids_of_objects_may_start_anywhere(tmp_path, first):
    document = make_document(0, objects=1)
    boxes = make_predictions(document, 0, 0.0, 0)
    expected = evaluate_boxes(write_json(tmp_path / 'ann.json', document), boxes)
    for number, ann in enumerate(document['annotations']):
        ann['id'] = first + (str(number) if first == 'a' else number)
    truth = coco_index(document)  # -3 and texts are refused by the check
    found = evaluate_boxes(truth, boxes)
    assert summary(found) == pytest.approx(summary(expected), nan_ok=True)
    assert found.stats[0] > 0.5
    assert best_f1_thresholds(found) == best_f1_thresholds(expected)


def name_images(document, boxes, names):
    """Give images other ids, in place; ``names`` by position."""
    ids = {image['id']: name for image, name in zip(document['images'], names)}
    for part, key in ((document['images'], 'id'), (document['annotations'], 'image_id')):
        for entry in part:
            entry[key] = ids[entry[key]]
    for box in boxes:
        box['image_id'] = ids[box['image_id']]


@pytest.mark.parametrize('name', [lambda i: 2**63 - 1 - 5 * (50 - i), lambda i: f'{i:02}'])
def test_ids_of_images_may_be_large_or_texts(name):
    document = make_document(0, objects=2)
    boxes = make_predictions(document, 0, 0.2, 1)

    def evaluate():
        return match_boxes(coco_index(document), boxes)

    expected = evaluate()
    names = [*map(name, range(len(document['images'])))]
    name_images(document, boxes, names)
    found = evaluate()
    assert np.array_equal(found.eval['precision'], expected.eval['precision'])
    assert found.stats[0] > 0.1
    by_class = PRCurves.of(expected).by_class()
    assert PRCurves.of(found).by_class() == pytest.approx(by_class, nan_ok=True)
    assert {x['image_id'] for x in found.cocoDt.dataset['annotations']} <= {*names}
    assert {*found.cocoDt.imgToAnns} <= {*found.cocoGt.imgs} == {*names}
    assert {x['image_id'] for x in found.evalImgs or () if x} <= {*names}


def test_ids_of_objects_past_a_double(tmp_path):
    document = make_document(0, objects=2)
    for number, ann in enumerate(document['annotations']):
        ann['id'] = 2**60 + 1 + number
    truth = load_ground_truth(write_json(tmp_path / 'ann.json', document))
    evaluation = evaluate_boxes(truth, make_predictions(document, 0, 0.0, 0))
    classes = [class_matches(evaluation, cat_id) for cat_id in truth.getCatIds()]
    assert sum(matches.is_right.sum() for matches in classes) > 10


def test_boxes_are_left_as_they_are(tmp_path):
    document = make_document()
    boxes = make_predictions(document)
    path = write_json(tmp_path / 'ann.json', document)
    before = [dict(box) for box in boxes]
    match_boxes(load_ground_truth(path), boxes)
    assert boxes == before


def test_faster_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, 'faster_coco_eval', None)
    assert fast_evaluator() is PYCOCOTOOLS
