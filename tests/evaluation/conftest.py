"""A small generated split, and what two models find in it."""

import json

import pytest
from noisy_boxes import make_predictions

from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco
from mmrank.evaluation.box_evaluation import evaluate_boxes, load_ground_truth


@pytest.fixture(scope='module')
def shapes(tmp_path_factory):
    """Its folder, annotation file and truth, and files of the boxes of two models."""
    root = tmp_path_factory.mktemp('shapes')
    files = write_shapes_coco(root, ShapesSpec(1, 10, 0, num_classes=5))
    truth = load_ground_truth(files['val'])
    models = {}
    for name, seed, jitter in (('good', 0, 0.02), ('poor', 1, 0.2)):
        boxes = make_predictions(truth.dataset, jitter=jitter, seed=seed)
        models[name] = root / f'{name}.bbox.json'
        models[name].write_text(json.dumps(boxes))
    return root, files['val'], truth, models


@pytest.fixture(scope='module')
def evaluations(shapes):
    """COCO's evaluation of each of the two models."""
    *_, truth, models = shapes
    return {name: evaluate_boxes(truth, file) for name, file in models.items()}
