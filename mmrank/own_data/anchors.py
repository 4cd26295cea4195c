"""Anchors of a detector, compared by what its own assigner makes of the boxes of a data set."""

from typing import NamedTuple

import numpy as np

from mmrank.annotations.objects import Columns

#: Most boxes, and most images, that an assigner looks at.
MOST_BOXES = 500
MOST_IMAGES = 200
#: Side of an anchor over its stride, compared with mmdet's own value where they are smaller.
SCALES = (1, 2, 3, 4, 6)
#: Fewer positive anchors than these teach little.
FEW = 3
#: Places of a stride in the short side of an object from which more of them gain nothing.
PLACES = 2.5


class Matches(NamedTuple):
    """What an assigner gives to n objects."""

    scale: int
    sides: tuple[int, int]  # of the smallest and the largest anchor, in pixels
    count: np.ndarray  # (n,) number of positive anchors of each object
    fit: np.ndarray  # (n,) mean of their overlaps, each times the share of PLACES in the short side

    def fit_of_classes(self, labels: np.ndarray) -> float:
        """Geometric mean over the classes of the mean :attr:`fit`; ``labels`` are (n,).

        Anchors that are too large hardly cover an object. Those that are too small give it
        positives of a coarse stride, of which few places lie in it. A class that gets next to
        nothing weighs more than one that could get more.
        """
        means = [self.fit[labels == label].mean() for label in np.unique(labels)]
        return float(np.exp(np.log(np.maximum(means, 1e-3)).mean()))

    def shown(self, labels: np.ndarray) -> str:
        """What a box gets, in words."""
        few = (self.count < FEW).mean()
        return (
            f'{self.fit_of_classes(labels):.0%} ({np.median(self.count):.0f} of them; {few:.0%} of '
            f'the boxes get fewer than {FEW})'
        )


class SomeImages(NamedTuple):
    """Some images of a data set, at the scale of the network."""

    sizes: list[tuple[int, int]]  # height and width of each
    boxes: list[np.ndarray]  # (k, 4) x1, y1, x2, y2 of each
    labels: np.ndarray  # (n,) position of the class of each box, image after image

    def sides(self) -> np.ndarray:
        """(n,) square roots of the areas of the boxes."""
        boxes = np.concatenate(self.boxes)
        return np.sqrt((boxes[:, 2:] - boxes[:, :2]).prod(1))


def some_images(columns: Columns, sizes: np.ndarray, scale: tuple[int, int]) -> SomeImages:
    """At most :data:`MOST_IMAGES` images with about :data:`MOST_BOXES` boxes, drawn at random.

    ``sizes`` are the (images, 2) widths and heights of the images of the file that has
    ``columns``, and ``scale`` is the longer and the shorter side of mmdet's ``Resize``.
    """
    is_object = columns.crowd == 0
    found = SomeImages([], [], [])
    number = 0
    for image in np.random.default_rng(0).permutation(np.unique(columns.image[is_object])):
        rows = is_object & (columns.image == image)
        factor = min(scale[0] / sizes[image].max(), scale[1] / sizes[image].min())
        boxes = columns.box[rows] * factor
        boxes[:, 2:] += boxes[:, :2]
        width, height = sizes[image] * factor
        found.sizes.append((height, width))
        found.boxes.append(boxes)
        found.labels.append(columns.label[rows])
        number += len(boxes)
        if number >= MOST_BOXES or len(found.boxes) >= MOST_IMAGES:
            break
    return found._replace(labels=np.concatenate(found.labels))


def compare_anchors(base: str, images: SomeImages) -> list[Matches]:
    """What the assigner of mmdet's config gives to the boxes, mmdet's own anchors first."""
    # Both take seconds.
    from mmdet.registry import TASK_UTILS
    from mmengine.hub import get_config

    model = get_config(f'mmdet::{base}').model
    head = model.get('rpn_head') or model.bbox_head
    settings = model.train_cfg.get('rpn') or model.train_cfg
    assigner = TASK_UTILS.build(dict(settings.assigner, _scope_='mmdet'))
    stock = head.anchor_generator
    key = 'scales' if 'scales' in stock else 'octave_base_scale'
    largest = stock[key][0] if key == 'scales' else stock[key]
    matches = []
    for scale in [largest, *(x for x in SCALES if x < largest)]:
        value = [scale] if key == 'scales' else scale
        generator = TASK_UTILS.build({**stock, key: value, '_scope_': 'mmdet'})
        parts = [
            _assign(assigner, generator, size, boxes)
            for size, boxes in zip(images.sizes, images.boxes, strict=True)
        ]
        sides = scale * generator.strides[0][0], scale * generator.strides[-1][0]
        matches.append(Matches(scale, sides, *np.concatenate(parts, axis=1)))
    return matches


def _assign(assigner, generator, size: tuple[float, float], boxes: np.ndarray) -> np.ndarray:
    """(2, k) number and fit of the positives of each box."""
    import torch
    from mmengine.structures import InstanceData

    # An image is filled up to a multiple of 32, as mmdet's configs do.
    height, width = (32 * np.ceil(side / 32) for side in size)
    shapes = [(int(-(-height // y)), int(-(-width // x))) for x, y in generator.strides]
    levels = generator.grid_priors(shapes, device='cpu')
    priors = InstanceData(priors=torch.cat(levels))
    labels = torch.zeros(len(boxes), dtype=torch.long)
    objects = InstanceData(bboxes=torch.as_tensor(boxes, dtype=torch.float32), labels=labels)
    if hasattr(assigner, 'topk'):
        found = assigner.assign(priors, [len(x) for x in levels], objects)
    else:
        found = assigner.assign(priors, objects)
    positive = found.gt_inds > 0
    place = found.gt_inds[positive] - 1
    overlaps = found.max_overlaps[positive].double()
    strides = torch.cat([torch.full((len(x),), y[0]) for x, y in zip(levels, generator.strides)])
    short = (objects.bboxes[:, 2:] - objects.bboxes[:, :2]).amin(1)
    share = (short[place] / (PLACES * strides[positive])).clamp(max=1)
    count = torch.bincount(place, minlength=len(boxes))
    fit = torch.bincount(place, overlaps * share, minlength=len(boxes))
    return torch.stack([count, fit / count.clamp(min=1)]).numpy()
