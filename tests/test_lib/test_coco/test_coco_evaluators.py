"""pycocotools and faster-coco-eval: equal figures, honest errors."""

import sys

import numpy as np
import pytest
from noisy_boxes import make_document, make_predictions, write_json

from lib.coco.box_evaluation import STAT_NAMES, summary
from lib.coco.evaluators import FASTER, PYCOCOTOOLS, check_equality, find_evaluators
from mmrank.errors import UserError


def evaluate(choice, ann_file, boxes):
    return [one.evaluate(one.load_truth(ann_file), boxes)[0] for one in find_evaluators(choice)]


@pytest.mark.parametrize(
    ('seed', 'jitter', 'objects', 'false'),
    # Few and many boxes, exact ones, none of a class, above 100 an image.
    [(0, 0.05, 6, 2), (1, 0.0, 2, 0), (2, 0.2, 1, 1), (3, 0.1, 3, 130)],
)
def test_evaluators_agree(tmp_path, seed, jitter, objects, false):
    pytest.importorskip('faster_coco_eval')
    document = make_document(seed, objects=objects)
    boxes = make_predictions(document, seed, jitter, false)
    path = write_json(tmp_path / 'ann.json', document)
    slow, fast = evaluate('both', path, boxes)
    assert check_equality(slow, fast, 'model') <= 1e-6
    # Not by comparing nothing: the figures are there and differ.
    figures = summary(fast)
    assert list(figures) == list(STAT_NAMES)
    assert figures == pytest.approx(summary(slow), abs=1e-6, nan_ok=True)
    assert 0 < figures['mAP'] <= 1
    assert np.asarray(fast.eval['precision']).shape == (10, 101, 5, 4, 3)


def test_evaluators_agree_on_nothing_found(tmp_path):
    pytest.importorskip('faster_coco_eval')
    path = write_json(tmp_path / 'ann.json', make_document())
    slow, fast = evaluate('both', path, [])
    assert check_equality(slow, fast, 'model') == 0
    assert summary(fast)['AR100'] == 0


def test_boxes_are_left_as_they_are(tmp_path):
    document = make_document()
    boxes = make_predictions(document)
    path = write_json(tmp_path / 'ann.json', document)
    before = [dict(box) for box in boxes]
    evaluate(PYCOCOTOOLS, path, boxes)
    assert boxes == before


def test_a_difference_is_found(tmp_path):
    document = make_document()
    path = write_json(tmp_path / 'ann.json', document)
    (one,) = find_evaluators(PYCOCOTOOLS)
    truth = one.load_truth(path)
    first, seconds = one.evaluate(truth, make_predictions(document, 0))
    assert seconds > 0
    other, _ = one.evaluate(truth, make_predictions(document, 1))
    with pytest.raises(UserError, match=r'model: .* differ by .* in'):
        check_equality(first, other, 'model')
    # The twelve figures count by themselves too.
    other, _ = one.evaluate(truth, make_predictions(document, 0))
    other.stats[3] += 2e-6
    with pytest.raises(UserError, match='in APs'):
        check_equality(first, other, 'model')
    assert check_equality(first, other, 'model', 1e-5) == pytest.approx(2e-6)


def test_faster_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, 'faster_coco_eval', None)
    (one,) = find_evaluators('auto')
    assert one.name == PYCOCOTOOLS
    for choice in (FASTER, 'both'):
        with pytest.raises(UserError, match='pip install faster'):
            find_evaluators(choice)
    with pytest.raises(UserError, match="'fastest' is unknown"):
        find_evaluators('fastest')
