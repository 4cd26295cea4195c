"""AP-fixed and AP-pool against loops over boxes, and against lvis itself."""

import math

import numpy as np
import pytest

pytest.importorskip('pycocotools')
from noisy_boxes import as_lvis, iou_of, make_document, make_predictions, write_json

from lib.coco.fixed_and_pooled_ap import best_of_class, describe_limit, fixed_and_pooled_ap
from mmrank.evaluation.lvis_numpy import require_lvis

THRESHOLDS = np.linspace(0.5, 0.95, 10)


def judged(document, boxes, kind, threshold):
    """(score, True, False or None) of each box of a class, image by image.

    None: the rules of LVIS ignore the box.
    """
    verdicts = []
    for image in sorted(document['images'], key=lambda i: i['id']):
        objects = [
            a['bbox']
            for a in document['annotations']
            if (a['image_id'], a['category_id']) == (image['id'], kind)
        ]
        if not objects and kind not in image['neg_category_ids']:
            continue
        own = [b for b in boxes if (b['image_id'], b['category_id']) == (image['id'], kind)]
        taken = set()
        for box in sorted(own, key=lambda b: -b['score']):
            fits = [
                (iou_of(box['bbox'], o), i)
                for i, o in enumerate(objects)
                if i not in taken and iou_of(box['bbox'], o) >= threshold
            ]
            if fits:
                taken.add(max(fits)[1])
                verdicts.append((box['score'], True))
            elif kind in image['not_exhaustive_category_ids']:
                verdicts.append((box['score'], None))
            else:
                verdicts.append((box['score'], False))
    return verdicts


def average_precision(verdicts, num_objects):
    points, true, false = [], 0, 0
    for _, verdict in sorted(verdicts, key=lambda v: -v[0]):
        true += verdict is True
        false += verdict is False
        points.append((true / num_objects, true / max(true + false, 1)))
    total = 0.0
    for recall in np.linspace(0, 1, 101):
        total += max((p for r, p in points if r >= recall), default=0.0)
    return total / 101


def brute_force(document, boxes, per_class):
    kept, fixed, pooled = [], {}, []
    for category in document['categories']:
        own = [b for b in boxes if b['category_id'] == category['id']]
        kept += sorted(own, key=lambda b: -b['score'])[:per_class]
    number = {
        c['id']: sum(a['category_id'] == c['id'] for a in document['annotations'])
        for c in document['categories']
    }
    for threshold in THRESHOLDS:
        every = []
        for kind, objects in number.items():
            verdicts = judged(document, kept, kind, threshold)
            every += verdicts
            if objects:
                ap = average_precision(verdicts, objects)
                fixed.setdefault(kind, []).append(ap)
        pooled.append(average_precision(every, sum(number.values())))

    def mean(letters):
        values = [
            np.mean(fixed[c['id']])
            for c in document['categories']
            if c['frequency'] in letters and c['id'] in fixed
        ]
        return np.mean(values) if values else math.nan

    return {
        'AP-fixed': mean('rcf'),
        'APr-fixed': mean('r'),
        'APc-fixed': mean('c'),
        'APf-fixed': mean('f'),
        'AP-pool': np.mean(pooled),
    }


def tiny(seed, classes=4):
    document = as_lvis(make_document(seed, images=6, classes=classes, objects=5))
    boxes = make_predictions(document, seed, false=4)
    # Without equal scores there is one order.
    for number, box in enumerate(boxes):
        box['score'] += 1e-6 * number
    return document, boxes


@pytest.mark.parametrize('per_class', [10_000, 5])
@pytest.mark.parametrize('seed', [0, 1, 2])
def test_figures_are_those_of_loops(seed, per_class):
    document, boxes = tiny(seed)
    for number, ann in enumerate(document['annotations']):
        ann['id'] = number  # 0 is no mark of a match either
    expected = brute_force(document, boxes, per_class)
    figures = fixed_and_pooled_ap(document, boxes, per_class)
    assert figures.keys() == expected.keys()
    for name, value in figures.items():
        assert value == pytest.approx(expected[name], abs=1e-12, nan_ok=True)
    assert 0.1 < figures['AP-pool'] < 0.95
    assert figures['AP-pool'] != figures['AP-fixed']


def test_pooling_depends_on_the_level_of_a_class():
    """A constant on the scores of a class moves AP-pool alone."""
    document, boxes = tiny(0)
    before = fixed_and_pooled_ap(document, boxes)
    kind = document['categories'][0]['id']
    for box in boxes:
        if box['category_id'] == kind:
            box['score'] += 5.0
    after = fixed_and_pooled_ap(document, boxes)
    assert after['AP-fixed'] == pytest.approx(before['AP-fixed'], abs=1e-12)
    assert after['AP-pool'] < before['AP-pool'] - 0.01


def test_boxes_of_a_class_are_limited_in_the_whole_set():
    boxes = [dict(image_id=i % 2, category_id=i % 3, score=i / 10, bbox=[0] * 4) for i in range(12)]
    best = best_of_class(boxes, 2)
    assert [b['score'] for b in best] == [0.9, 0.6, 1.0, 0.7, 1.1, 0.8]
    best[0]['id'] = 1
    assert all('id' not in box for box in boxes)


def test_classes_without_objects_or_boxes():
    document, boxes = tiny(1)
    figures = fixed_and_pooled_ap(document, [])
    assert figures['AP-fixed'] == figures['AP-pool'] == 0
    document['annotations'] = []
    assert all(map(math.isnan, fixed_and_pooled_ap(document, boxes).values()))
    document['images'] = []
    assert all(map(math.isnan, fixed_and_pooled_ap(document, []).values()))


def test_a_limit_for_each_image_is_said():
    boxes = [dict(image_id=i) for i in (1, 2) for _ in range(300)]
    assert '2 images have 300 boxes' in describe_limit(boxes)
    assert describe_limit(boxes[:-1]) is None
    assert describe_limit([]) is None


def test_figures_are_those_of_lvis(tmp_path):
    pytest.importorskip('lvis', reason='the optional package lvis is absent')
    lvis = require_lvis()
    document, boxes = tiny(3, classes=6)
    path = write_json(tmp_path / 'lvis.json', document)
    figures = fixed_and_pooled_ap(document, boxes)
    truth = lvis.LVIS(str(path))
    found = lvis.LVISResults(truth, [dict(b) for b in boxes], max_dets=-1)
    evaluation = lvis.LVISEval(truth, found, 'bbox')
    evaluation.params.max_dets = -1
    evaluation.run()
    for letter in ('', 'r', 'c', 'f'):
        theirs = evaluation.results[f'AP{letter}']
        assert figures[f'AP{letter}-fixed'] == pytest.approx(theirs)
