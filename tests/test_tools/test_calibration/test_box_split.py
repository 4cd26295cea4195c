"""Boxes of a split: judged as COCO does, AP equal to the last bit."""

import json

import numpy as np
import pytest
from noisy_boxes import iou_of

pytest.importorskip('sklearn')
pytest.importorskip('pycocotools')
from noisy_boxes import make_document, make_predictions, write_json
from pycocotools.coco import COCO

from calibration.box_split import BoxSplit
from calibration.fitting import fit_calibration
from mmrank.errors import UserError


def brute_force(document, boxes, classes, iou=0.5):
    """(score, class, whether it is right) of each box that counts, in plain loops."""
    found = []
    for image in document['images']:
        for label, cat in enumerate(classes):
            mine = [x for x in boxes if (x['image_id'], x['category_id']) == (image['id'], cat)]
            objects = [
                x
                for x in document['annotations']
                if (x['image_id'], x['category_id']) == (image['id'], cat)
            ]
            taken = set()
            for box in sorted(mine, key=lambda x: -x['score'])[:100]:
                best, match = iou, None
                for x in objects:
                    value = iou_of(box['bbox'], x['bbox'])
                    if not x['iscrowd'] and x['id'] not in taken and (value >= best):
                        best, match = value, x['id']
                if match is not None:
                    taken.add(match)
                    found.append((box['score'], label, True))
                elif not any(
                    x['iscrowd'] and iou_of(box['bbox'], x['bbox'], True) >= iou for x in objects
                ):
                    found.append((box['score'], label, False))
    return found


@pytest.fixture(scope='module')
def data():
    document = make_document(images=14, classes=3, objects=5, seed=1)
    for ann in document['annotations'][::7]:
        ann['iscrowd'] = 1
    for number, ann in enumerate(document['annotations'], -1):
        ann['id'] = number  # also where an evaluator marks an unmatched box by the id 0
    boxes = make_predictions(document, jitter=0.08, false=6, seed=1)
    # A class of one image has more boxes than COCO counts.
    rng = np.random.default_rng(0)
    for _ in range(130):
        bbox = [*rng.uniform(0, 200, 2), 30, 30]
        score = round(rng.uniform(0, 0.3), 2)
        boxes.append(dict(image_id=2, category_id=3, bbox=bbox, score=score))
    return document, boxes


def truth_of(document):
    truth = COCO()
    truth.dataset = json.loads(json.dumps(document))
    truth.createIndex()
    return truth


@pytest.fixture(scope='module')
def split(data, tmp_path_factory):
    document, boxes = data
    folder = tmp_path_factory.mktemp('split')
    (folder / 'boxes.json').write_text(json.dumps(boxes))
    (folder / 'truth.json').write_text(json.dumps(document))
    return BoxSplit.read(folder / 'boxes.json', folder / 'truth.json')


def test_boxes_are_judged_as_by_the_definition(data, split):
    document, boxes = data
    expected = brute_force(document, boxes, [3, 6, 9])
    judged = split.judged
    got = zip(judged.scores.tolist(), judged.labels.tolist(), judged.is_right.tolist())
    assert len(judged.scores) < len(boxes) - 20  # beyond 100, and on crowds
    expected = [(float(np.float32(s)), c, right) for s, c, right in expected]
    assert sorted(got) == sorted(expected)
    assert judged.classes == ('class 1', 'class 2', 'class 3')


def test_ap_is_equal_to_the_last_bit(split):
    calibration = fit_calibration(split.judged, min_each=3)
    before, after = split.figures(), split.figures(calibration)
    assert before.equals(after)
    assert np.array_equal(before.by_class, after.by_class)
    assert before.mean == after.mean > 0
    assert [x.shape for x in before.details] == [(12,), (10, 101, 3, 4, 3), (10, 3, 4, 3)]
    # The scores themselves are others, also in their order over classes.
    scores = np.array([x['score'] for x in split.calibrated(calibration)])
    raw = np.array([x['score'] for x in split.boxes])
    assert np.abs(scores - raw).max() > 0.05


def test_images_of_both_splits_are_noticed(split, tmp_path):
    other = make_document(images=14, classes=3, objects=5, seed=2)
    path = write_json(tmp_path / 'boxes.json', make_predictions(other))
    assert not split.same_as(BoxSplit.read(path, truth_of(other)))
    assert split.same_as(split)


@pytest.mark.parametrize(
    ('boxes', 'classes', 'text'),
    [
        ([], None, 'have no box: there is nothing to calibrate'),
        (None, ['class 2', 'class 1', 'class 3'], 'classes class 2, class 1, class 3, the anno'),
        (None, ['cow'], 'the annotations none of them'),
        (None, ['class 1'], 'have a category_id that is not in'),
    ],
)
def test_what_does_not_fit_is_one_message(boxes, classes, text, data, tmp_path):
    document, own = data
    path = tmp_path / 'boxes.json'
    path.write_text(json.dumps(own if boxes is None else boxes))
    with pytest.raises(UserError, match=text) as caught:
        BoxSplit.read(path, truth_of(document), classes)
    assert 'Fix: ' in str(caught.value)


def test_federated_annotations_are_refused(data):
    document = json.loads(json.dumps(data[0]))
    document['images'][3]['neg_category_ids'] = [3]
    with pytest.raises(UserError, match='annotations are of LVIS'):
        BoxSplit.read('boxes.json', truth_of(document))
