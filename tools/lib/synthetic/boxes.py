"""COCO annotations and predictions made of numbers alone, without images.

They replace a detector's results where evaluators are compared or timed.
"""

import numpy as np

_WIDTH = 640
_HEIGHT = 480


def make_annotations(*, images: int, classes: int, objects: float, seed: int = 0) -> dict:
    """Make annotations with small to large objects, a few of them crowds."""
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


def make_predictions(
    document: dict, *, jitter: float = 0.05, missed: float = 0.1, false: int = 2, seed: int = 0
) -> list[dict]:
    """Make predictions from annotations: moved, missed and false boxes."""
    rng = np.random.default_rng(seed)
    kinds = [cat['id'] for cat in document['categories']]
    boxes = []

    def add(image_id: int, kind: int, box: np.ndarray, score: float) -> None:
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
