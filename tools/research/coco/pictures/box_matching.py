"""Which predicted boxes of an image are right, for drawing and counting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pycocotools import mask as box_overlap
from pycocotools.coco import COCO

MATCH_IOU = 0.5


@dataclass(frozen=True)
class DrawnBox:
    """A box in pixels, its class and how it fared.

    Attributes:
        box: (x, y, width, height).
        cat_id: Category id.
        label: Text at the box; empty for none.
        is_right: Whether it matches an object (a prediction) or was found
            (an object).
    """

    box: Sequence[float]
    cat_id: int
    label: str = ''
    is_right: bool = True


def true_boxes(truth: COCO, image_id: int) -> list[DrawnBox]:
    """Return the ground-truth boxes of one image, without crowds.

    Args:
        truth: Annotations.
        image_id: Image.

    Returns:
        The boxes.
    """
    anns = truth.imgToAnns.get(image_id, [])
    return [DrawnBox(a['bbox'], a['category_id']) for a in anns if not a.get('iscrowd')]


def matched_boxes(
    truth: COCO,
    found: COCO,
    image_id: int,
    thresholds: Mapping[int, float] | None = None,
    top_k: int | None = None,
) -> list[DrawnBox]:
    """Return the predicted boxes of one image and their matches.

    Boxes are taken by descending score; each is right if an object of its class that no better box
    has taken overlaps it by IoU 0.5 or more.

    Args:
        truth: Annotations.
        found: Predictions, indexed by ``COCO.loadRes``.
        image_id: Image.
        thresholds: Least score by category id; None for all boxes.
        top_k: Take this many best boxes at most.

    Returns:
        The boxes, best first.
    """
    boxes = sorted(found.imgToAnns.get(image_id, []), key=lambda box: -box['score'])
    if thresholds is not None:
        boxes = [b for b in boxes if b['score'] >= thresholds[b['category_id']]]
    left = true_boxes(truth, image_id)
    drawn = []
    for box in boxes[:top_k]:
        match = _best_match(box, left)
        if match is not None:
            left.remove(match)
        drawn.append(
            DrawnBox(box['bbox'], box['category_id'], f'{box["score"]:.2f}', match is not None)
        )
    return drawn


def _best_match(box: dict, objects: list[DrawnBox]) -> DrawnBox | None:
    """The object of the box's class that overlaps it most, if enough."""
    same = [o for o in objects if o.cat_id == box['category_id']]
    if not same:
        return None
    overlap = box_overlap.iou([box['bbox']], [list(o.box) for o in same], [0] * len(same))[0]
    best = int(overlap.argmax())
    return same[best] if overlap[best] >= MATCH_IOU else None
