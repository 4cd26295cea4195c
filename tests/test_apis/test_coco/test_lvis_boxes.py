"""LVIS figures against mmdet's own metric."""

import sys

import numpy as np
import pytest
from noisy_boxes import as_lvis, make_document, make_predictions, write_json

from mmrank.apis.coco.box_evaluation import evaluate_lvis, load_ground_truth, summary
from mmrank.apis.coco.pr_curves import PRCurves
from mmrank.datasets.lvis_annotations import is_lvis
from mmrank.errors import UserError
from mmrank.evaluation.lvis_numpy import require_lvis


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


def test_lvis_annotations_are_recognised(data):
    _, document, _ = data
    assert is_lvis(document)
    assert not is_lvis(make_document())
    assert not is_lvis({'images': [], 'categories': []})


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
