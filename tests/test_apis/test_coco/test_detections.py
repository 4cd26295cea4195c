"""Boxes that are drawn: matches, colours and labels."""

import numpy as np
from noisy_boxes import make_document, write_json

from mmrank.apis.coco.box_evaluation import evaluate_boxes, load_ground_truth
from mmrank.apis.coco.detections import _class_colours, _fitting_labels, _found_boxes


def test_a_box_is_right_where_it_takes_an_object(tmp_path):
    document = make_document(0, images=1, classes=1, objects=3)
    truth = load_ground_truth(write_json(tmp_path / 'ann.json', document))
    one, *_ = [x for x in document['annotations'] if not x['iscrowd']]
    box = dict(image_id=1, category_id=3)
    boxes = [dict(box, bbox=one['bbox'], score=0.9), dict(box, bbox=one['bbox'], score=0.8)]
    (found,) = _found_boxes(evaluate_boxes(truth, boxes[1:] + boxes[:1]), [1]).values()
    # The second one finds nothing that is left, and the best F1 hides it.
    assert [(x.label, x.is_right) for x in found] == [('0.90', True)]


def test_colours_of_many_classes_are_spent_on_those_shown(evaluations):
    truth = evaluations['good'].cocoGt
    assert _class_colours(truth, {1})[1] == _class_colours(truth)[1]
    many = load_ground_truth(truth)
    cats, many.cats = many.cats, {i: {'name': str(i)} for i in range(80)}
    try:
        colours = _class_colours(many, {3, 70})
    finally:
        many.cats = cats
    assert set(colours) == {3, 70}
    assert len(set(colours.values())) == 2


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
