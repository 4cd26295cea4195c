"""Boxes that are drawn: matches, colours and labels."""

import numpy as np

from mmrank.apis.coco.box_evaluation import load_ground_truth
from mmrank.apis.coco.detections import _class_colours, _fitting_labels, _matched_boxes


def test_matches_are_those_of_pycocotools(evaluations):
    """At IoU 0.5, where there is no crowd."""
    for evaluation in evaluations.values():
        truth = evaluation.cocoGt
        for image_id in truth.imgs:
            ours = _matched_boxes(truth, evaluation.cocoDt, image_id)
            theirs = sum(
                int((e['dtMatches'][0] > 0).sum())
                for e in evaluation.evalImgs
                if e is not None
                and e['image_id'] == image_id
                and list(e['aRng']) == list(evaluation.params.areaRng[0])
            )
            assert sum(box.is_right for box in ours) == theirs


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
