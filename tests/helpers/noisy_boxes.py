"""COCO and LVIS annotations and predictions for tests."""

import json

import numpy as np

FREQUENCIES = 'rcf'


_WIDTH = 640
_HEIGHT = 480


def make_document(seed=0, images=12, classes=5, objects=6):
    """Annotations with small to large objects, a few of them crowds."""
    rng = np.random.default_rng(seed)
    document = {
        'images': [
            {'id': i, 'file_name': f'{i}.jpg', 'width': _WIDTH, 'height': _HEIGHT}
            for i in range(1, images + 1)
        ],
        'categories': [{'id': 3 * i, 'name': f'class {i}'} for i in range(1, classes + 1)],
        'annotations': [],
    }
    for image in document['images']:
        count = rng.poisson(objects)
        sizes = np.exp(rng.uniform(np.log(8), np.log(300), (count, 2)))
        room = np.maximum([_WIDTH, _HEIGHT] - sizes, 0)
        corners = rng.uniform(size=(count, 2)) * room
        kinds = 3 * rng.integers(1, classes + 1, count)
        crowds = rng.random(count) < 0.02
        for corner, size, kind, is_crowd in zip(corners, sizes, kinds, crowds):
            box = dict(bbox=[*corner.tolist(), *size.tolist()], area=float(size.prod()))
            place = dict(id=len(document['annotations']) + 1, image_id=image['id'])
            kind = dict(category_id=int(kind), iscrowd=int(is_crowd))
            document['annotations'].append(place | kind | box)
    return document


def make_predictions(document, seed=0, jitter=0.05, false=2, missed=0.1):
    """Truth with noise: some missed, some moved, and false boxes."""
    rng = np.random.default_rng(seed)
    kinds = [cat['id'] for cat in document['categories']]
    boxes = []

    def add(image_id, kind, box, score):
        score = round(float(score), 3)
        boxes.append(dict(image_id=image_id, category_id=int(kind), bbox=box.tolist(), score=score))

    for ann in document['annotations']:
        if rng.random() < missed:
            continue
        box = np.array(ann['bbox'])
        box = box + jitter * np.r_[box[2:], box[2:]] * rng.normal(size=4)
        box[2:] = np.maximum(box[2:], 1)
        score = rng.uniform(0.3, 1)
        add(ann['image_id'], ann['category_id'], box, score)
    for image in document['images']:
        corners = rng.uniform(0, [_WIDTH - 240, _HEIGHT - 240], (false, 2))
        sizes = rng.uniform(8, 240, (false, 2))
        scores = rng.uniform(0, 0.7, false)
        for corner, size, score in zip(corners, sizes, scores):
            add(image['id'], rng.choice(kinds), np.r_[corner, size], score)
    return boxes


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
