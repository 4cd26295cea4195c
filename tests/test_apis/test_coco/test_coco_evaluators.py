"""pycocotools and faster-coco-eval: equal figures."""

import sys

import numpy as np
import pytest
from noisy_boxes import make_document, make_predictions, write_json

from mmrank.apis.coco.box_evaluation import load_ground_truth, match_boxes, summary
from mmrank.evaluation.coco_index import PYCOCOTOOLS, fast_evaluator


def evaluate_by_both(ann_file, boxes):
    """Evaluations by pycocotools and by faster-coco-eval, whose figures are equal."""
    pytest.importorskip('faster_coco_eval')
    assert fast_evaluator()[0] == 'faster-coco-eval'
    truth = load_ground_truth(ann_file)
    found = [match_boxes(truth, boxes, fast=fast) for fast in (False, True)]
    for key in ('precision', 'recall'):
        one, two = (np.asarray(x.eval[key]) for x in found)
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)
    return found


@pytest.mark.parametrize(
    ('seed', 'jitter', 'objects', 'false'),
    # Few and many boxes, exact ones, none of a class, above 100 an image.
    [(0, 0.05, 6, 2), (1, 0.0, 2, 0), (2, 0.2, 1, 1), (3, 0.1, 3, 130)],
)
def test_evaluators_agree(tmp_path, seed, jitter, objects, false):
    document = make_document(seed, objects=objects)
    boxes = make_predictions(document, seed, jitter, false)
    slow, fast = evaluate_by_both(write_json(tmp_path / 'ann.json', document), boxes)
    # Not by comparing nothing: the figures are there and differ.
    figures = summary(fast)
    assert len(figures) == 12
    assert figures == pytest.approx(summary(slow), abs=1e-6, nan_ok=True)
    assert 0 < figures['mAP'] <= 1
    assert np.asarray(fast.eval['precision']).shape == (10, 101, 5, 4, 3)


def test_evaluators_agree_on_nothing_found(tmp_path):
    path = write_json(tmp_path / 'ann.json', make_document())
    slow, fast = evaluate_by_both(path, [])
    assert summary(fast) == pytest.approx(summary(slow), abs=0, nan_ok=True)
    assert summary(fast)['AR100'] == 0


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
