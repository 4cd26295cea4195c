"""COCO and LVIS annotations and predictions for tests."""

import json

from lib.synthetic import boxes as synthetic_boxes

FREQUENCIES = 'rcf'


def make_document(seed=0, images=12, classes=5, objects=6):
    """Annotations with small to large objects, and crowds."""
    return synthetic_boxes.make_annotations(
        images=images, classes=classes, objects=objects, seed=seed
    )


def make_predictions(document, seed=0, jitter=0.05, false=2):
    """Truth with noise: some missed, some moved, and false boxes."""
    return synthetic_boxes.make_predictions(document, jitter=jitter, false=false, seed=seed)


def as_lvis(document):
    """The same as LVIS v1 annotations: federated, with frequencies."""
    lvis = json.loads(json.dumps(document))
    for index, category in enumerate(lvis['categories']):
        category['frequency'] = FREQUENCIES[index % 3]
    ids = [cat['id'] for cat in lvis['categories']]
    for index, image in enumerate(lvis['images']):
        name = image.pop('file_name')
        image['coco_url'] = f'http://images.cocodataset.org/val2017/{name}'
        image['neg_category_ids'] = [ids[index % len(ids)]]
        image['not_exhaustive_category_ids'] = [ids[(index + 1) % len(ids)]]
    for ann in lvis['annotations']:
        del ann['iscrowd']
    return lvis


def iou_of(one, other, crowd=False):
    """Overlap of two boxes over their union, of a crowd over the first."""
    x0, y0 = max(one[0], other[0]), max(one[1], other[1])
    x1 = min(one[0] + one[2], other[0] + other[2])
    y1 = min(one[1] + one[3], other[1] + other[3])
    both = max(x1 - x0, 0) * max(y1 - y0, 0)
    area = one[2] * one[3]
    return both / (area if crowd else area + other[2] * other[3] - both)


def write_json(path, content):
    """Write a JSON file; give its path."""
    path.write_text(json.dumps(content))
    return path
