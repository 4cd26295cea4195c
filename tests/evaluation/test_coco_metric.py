"""mmrank.CocoMetric against mmdet's, and where mmdet's figures are wrong."""

import json

import numpy as np
import pytest
import torch
from noisy_boxes import make_document, make_predictions, write_json

pytest.importorskip('mmdet')
from mmdet.evaluation import CocoMetric as HostMetric
from mmengine.hooks import CheckpointHook, EarlyStoppingHook

from mmrank.engine.hooks.data_check_hooks import _metric_names
from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import match_boxes
from mmrank.evaluation.coco_index import coco_index, fast_evaluator
from mmrank.evaluation.operating_points import FIGURES, figures_at, matches_by_class, pool
from mmrank.evaluation.operating_points import figures_of as operating_points
from mmrank.registry import METRICS


def metric_of(ann_file, **options):
    return METRICS.build(dict(type='mmrank.CocoMetric', ann_file=str(ann_file), **options))


def figures_of(metric, document, boxes, names=None):
    """What a metric makes of boxes in COCO's form, of some classes by name or all."""
    names = names or [x['name'] for x in document['categories']]
    labels = {x['id']: label for label, x in enumerate(document['categories'])}
    metric.dataset_meta = dict(classes=names)
    for image in document['images']:
        own = [box for box in boxes if box['image_id'] == image['id']]
        corners = torch.tensor([box['bbox'] for box in own]).double().reshape(-1, 4)
        corners[:, 2:] += corners[:, :2]
        found = dict(
            bboxes=corners,
            scores=torch.tensor([box['score'] for box in own]).double(),
            labels=torch.tensor([labels[box['category_id']] for box in own]).long(),
        )
        sample = dict(img_id=image['id'], ori_shape=(480, 640), pred_instances=found)
        metric.process({}, [sample])
    return metric.evaluate(len(document['images']))


def made_up(seed):
    """A small random document and boxes whose scores often tie."""
    rng = np.random.default_rng(seed)
    sizes = dict(images=rng.integers(1, 5), classes=rng.integers(1, 4))
    document = make_document(seed, objects=rng.integers(1, 6), **sizes)
    jitter = rng.choice([0.0, 0.05, 0.3])
    boxes = make_predictions(document, seed, jitter, false=rng.integers(1, 4), missed=0.2)
    return document, [{**box, 'score': round(box['score'], 1)} for box in boxes]


@pytest.mark.parametrize('seed', range(20))
def test_figures_are_those_of_pycocotools(tmp_path, seed):
    """10,000 such files were compared once."""
    assert fast_evaluator().__name__ == 'COCOeval_faster'
    document, boxes = made_up(seed)
    path = write_json(tmp_path / 'a.json', document)
    options = dict(classwise=True, metric_items=['mAP', 'mAP_50', 'mAP_s', 'mAP_l', 'AR@100'])
    expected = figures_of(HostMetric(str(path), **options), document, boxes)
    metric = metric_of(path, **options, thresholds=0.5)
    metric.dataset_meta = dict(classes=[x['name'] for x in document['categories']])
    found = figures_of(metric, document, boxes)
    # The check of save_best knows all names but those at a threshold.
    assert {*_metric_names(metric)} == {x for x in found if not x.endswith('@threshold')}
    more = {key: found.pop(key) for key in {*found} - {*expected}}
    assert found == pytest.approx(expected, abs=1e-9, nan_ok=True)
    classes = matches_by_class(match_boxes(coco_index(document), boxes))
    parts = {f'{x["name"]}_': classes[x['id']] for x in document['categories']}
    for name, own in {'': pool(classes.values()), **parts}.items():
        points = operating_points(own, FIGURES)
        for figure, (value, _) in points.items():
            value = -1 if np.isnan(value) and not name else value
            assert more[f'coco/{name}{figure}'] == pytest.approx(value, nan_ok=True)
        assert more[f'coco/{name}f1_threshold'] == pytest.approx(points['f1'][1])
        at = figures_at([(own, 0.5)])['false_alarms']
        assert more[f'coco/{name}false_alarms@threshold'] == at


def test_thresholds_are_those_of_the_classes(tmp_path):
    document, boxes = made_up(6)
    path = write_json(tmp_path / 'a.json', document)
    names = [x['name'] for x in document['categories']]
    cuts = {name: 0.2 * index for index, name in enumerate(names, 1)}
    found = figures_of(metric_of(path, thresholds=cuts, figure_iou=0.75), document, boxes)
    classes = matches_by_class(match_boxes(coco_index(document), boxes), 0.75)
    at = figures_at(zip(classes.values(), cuts.values()))
    assert {x: found[f'coco/{x}@threshold'] for x in at} == at
    with pytest.raises(UserError, match="thresholds has no class 'class 1', but other.* Fix: "):
        figures_of(metric_of(path, thresholds=dict(other=0.5)), document, boxes)
    with pytest.raises(UserError, match="'recall@1' is unknown.* Fix: "):
        metric_of(path, figures=['recall@1'])
    with pytest.raises(UserError, match=r'figure_iou=50 are not all in \(0, 1\]. Fix: '):
        metric_of(path, figure_iou=50)
    for wrong in (50, -1, float('nan'), 'auto', [0.5], {'class 1': 'high'}):
        with pytest.raises(UserError, match='thresholds=.* are not scores.* Fix: thresholds=0.5'):
            metric_of(path, thresholds=wrong)
    assert metric_of(path, figures='f1').figures == ['f1']


@pytest.mark.parametrize('name', ['coco/recall@fp1', 'coco/segm_recall', 'coco/f1', 'coco/cat_f1'])
def test_more_is_better_for_hooks(name):
    assert CheckpointHook(save_best=name).rules == ['greater']
    assert EarlyStoppingHook(name).rule == 'greater'


@pytest.mark.parametrize('first', [0, -3, 2**60, 'a', None])
def test_ids_of_annotations_may_be_anything_and_those_of_images_texts(tmp_path, first):
    document, boxes = made_up(3)
    expected = figures_of(metric_of(write_json(tmp_path / 'a.json', document)), document, boxes)
    if first is None:
        for entry in document['images']:
            entry['id'] = f'00{entry["id"]}'
        for entry in (*document['annotations'], *boxes):
            entry['image_id'] = f'00{entry["image_id"]}'
    else:
        for number, ann in enumerate(document['annotations']):
            ann['id'] = f'a{number}' if first == 'a' else first + number
    path = write_json(tmp_path / 'b.json', document)
    assert figures_of(metric_of(path), document, boxes) == expected


def perfect(document):
    keys = ('image_id', 'category_id', 'bbox')
    objects = enumerate(document['annotations'])
    return [{key: x[key] for key in keys} | dict(score=1 - n / 1000) for n, x in objects]


def test_more_objects_than_detections_that_count(tmp_path):
    document = make_document(images=1, classes=1, objects=0)
    for n in range(150):
        box = [40 * (n % 15), 40 * (n // 15), 30, 30]
        document['annotations'].append(
            dict(id=n + 1, image_id=1, category_id=3, bbox=box, area=900, iscrowd=0)
        )
    path = write_json(tmp_path / 'a.json', document)
    with pytest.warns(UserWarning, match='image_id 1 has 150 .* more than 100.* Fix: ') as caught:
        limited = figures_of(metric_of(path), document, perfect(document))
    host = figures_of(HostMetric(str(path)), document, perfect(document))
    assert host.items() <= limited.items()
    assert host['coco/bbox_mAP'] == pytest.approx(0.663)
    assert 'proposal_nums=(1, 10, 150)' in str(caught[0].message)
    more = figures_of(metric_of(path, proposal_nums=(1, 10, 150)), document, perfect(document))
    assert more['coco/bbox_mAP'] == more['coco/bbox_mAP_50'] == 1
    boxes = [{**box, 'score': 0.5} for box in perfect(document)]
    with pytest.warns(UserWarning, match='equal scores'):
        figures_of(metric_of(path), document, boxes)


@pytest.mark.parametrize('ids', [(9, 2), (2, 9)])
def test_classes_have_their_names_whatever_the_order_of_their_ids(tmp_path, ids):
    document = make_document(images=2, classes=1, objects=2)
    document['categories'] = [dict(id=ids[0], name='cat'), dict(id=ids[1], name='dog')]
    for number, ann in enumerate(document['annotations']):
        ann.update(category_id=ids[number % 2], iscrowd=0)
    path = write_json(tmp_path / 'a.json', document)
    cats = [box for box in perfect(document) if box['category_id'] == ids[0]]
    for thresholds in (None, [0.75, 0.5], 0.5):
        figures = figures_of(metric_of(path, classwise=True, iou_thrs=thresholds), document, cats)
        names = ('cat_precision', 'dog_precision', 'bbox_mAP')
        assert [figures[f'coco/{x}'] for x in names] == [1, 0, 0.5]
    assert (figures['coco/bbox_mAP_50'], figures['coco/bbox_mAP_75']) == (0.5, -1)
    with pytest.raises(UserError, match=r'iou_thrs=\[50.0\], .* are not all in \(0, 1\]. Fix: '):
        metric_of(path, iou_thrs=50)


def test_a_part_of_the_images_and_of_the_classes_is_evaluated_by_itself(tmp_path):
    document = make_document(images=3, classes=2, objects=2)
    path = write_json(tmp_path / 'a.json', document)
    part = {**document, 'images': document['images'][:2]}
    assert figures_of(metric_of(path), part, perfect(document))['coco/bbox_mAP'] == 1
    known = document['categories'].pop()['id']
    document['annotations'] = [x for x in document['annotations'] if x['category_id'] != known]
    metric = metric_of(write_json(tmp_path / 'b.json', document))
    other = dict(document, categories=[*document['categories'], dict(id=known, name='other')])
    boxes = perfect(document)
    boxes += [{**box, 'category_id': known} for box in boxes]
    names = [x['name'] for x in document['categories']]
    assert figures_of(metric, other, boxes, names)['coco/bbox_mAP'] == 1


def test_without_an_annotation_file_and_for_the_server(tmp_path):
    document, boxes = made_up(4)
    path = write_json(tmp_path / 'a.json', document)
    prefix = str(tmp_path / 'found')
    assert (
        figures_of(metric_of(path, format_only=True, outfile_prefix=prefix), document, boxes) == {}
    )
    written = json.loads((tmp_path / 'found.bbox.json').read_text())
    assert {box['image_id'] for box in written} == {box['image_id'] for box in boxes}
    metric = metric_of(path)
    metric._coco_api = None  # as without ann_file
    with pytest.raises(AssertionError, match='ground truth is required'):
        figures_of(metric, document, boxes)
