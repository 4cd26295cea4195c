"""Detections for COCO's test server: mmdet writes them, the tool checks."""

import json
import zipfile
from pathlib import Path

import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.evaluation import CocoMetric

TOOL = Path(__file__).parents[2] / 'tools/analysis_tools/check_submission.py'
CLASSES = ('person', 'dog', 'cup')
# Not 0, 1, 2: labels have to become ids of the file.
CATEGORY_IDS = (1, 18, 47)


@pytest.fixture
def images(tmp_path):
    """A file of images and categories without annotations."""
    path = tmp_path / 'image_info_test-dev2017.json'
    content = dict(
        images=[dict(id=i, file_name=f'{i}.jpg', width=64, height=48) for i in (7, 391895)],
        categories=[dict(id=i, name=name) for i, name in zip(CATEGORY_IDS, CLASSES)],
    )
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def results(images, tmp_path):
    """What CocoMetric writes for them with ``format_only``."""
    metric = CocoMetric(
        ann_file=str(images), format_only=True, outfile_prefix=str(tmp_path / 'test-dev')
    )
    metric.dataset_meta = dict(classes=CLASSES)
    for image_id in (7, 391895):
        found = dict(
            bboxes=torch.tensor([[1.0, 2, 11, 22], [0.5, 0.5, 30, 40]]),
            scores=torch.tensor([0.9, 0.25]),
            labels=torch.tensor([2, 0]),
        )
        sample = dict(img_id=image_id, ori_shape=(48, 64), pred_instances=found)
        metric.process({}, [sample])
    assert metric.evaluate(size=2) == {}
    return tmp_path / 'test-dev.bbox.json'


def test_file_of_mmdet_may_be_sent(results, images, tmp_path, run_script):
    packed = tmp_path / 'detections_test-dev2017_ours_results.zip'
    status, output, _ = run_script(TOOL, results, images, '--zip', packed)
    assert status == 0
    assert '4 boxes in 2 of 2 images, 2 of 3 categories' in output
    with zipfile.ZipFile(packed) as archive:
        (name,) = archive.namelist()
        boxes = json.loads(archive.read(name))
    assert name == 'detections_test-dev2017_ours_results.json'
    assert boxes[0] == dict(
        image_id=7, bbox=[1.0, 2.0, 10.0, 20.0], score=pytest.approx(0.9), category_id=47
    )


@pytest.mark.parametrize(
    ('field', 'value', 'message'),
    [
        ('category_id', 0, 'must be mapped to category ids'),
        ('category_id', 18.0, 'have to be integers'),
        ('category_id', '18', 'have to be integers'),
        ('image_id', 8, 'not in the annotations'),
        ('image_id', True, 'have to be integers'),
        ('bbox', [0, 0, '9', 9], 'four finite numbers'),
        ('bbox', [0, 0, 9], 'four finite numbers'),
        ('bbox', [5, 5, -1, 3], 'negative width'),
        ('score', '0.5', 'not texts'),
    ],
)
def test_other_files_are_refused(results, images, run_script, field, value, message):
    boxes = json.loads(results.read_text())
    boxes[1][field] = value
    results.write_text(json.dumps(boxes))
    status, _, errors = run_script(TOOL, results, images)
    assert status == 2
    assert message in errors
    assert 'Fix: ' in errors


def test_no_box_and_a_bad_file_of_images(results, images, tmp_path, run_script):
    images.write_text('{"images": []}')
    status, _, errors = run_script(TOOL, results, images)
    assert (status, 'categories' in errors) == (2, True)
    results.write_text('[]')
    status, _, errors = run_script(TOOL, results, images)
    assert (status, 'its AP is 0' in errors) == (2, True)
    status, _, errors = run_script(TOOL, results, images, '--zip', 'a.json')
    assert (status, 'must end in .zip' in errors) == (2, True)


def test_more_boxes_than_count(results, images, run_script):
    boxes = json.loads(results.read_text()) * 60
    results.write_text(json.dumps(boxes))
    status, output, _ = run_script(TOOL, results, images)
    assert status == 0
    assert '2 images have more than 100 boxes' in output
