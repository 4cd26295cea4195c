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


def write_json(path, content):
    """Write a JSON file; give its path."""
    path.write_text(json.dumps(content))
    return path
