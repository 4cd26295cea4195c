"""Images on which two detectors differ most."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from research.coco.pictures.box_matching import matched_boxes


@dataclass(frozen=True)
class ImageDifference:
    """What two models show on an image.

    Attributes:
        image_id: Image.
        right: Boxes that match an object, of the first and second model.
        wrong: Boxes that match none, of the first and second model.
    """

    image_id: int
    right: tuple[int, int]
    wrong: tuple[int, int]

    @property
    def size(self) -> int:
        """Difference in right boxes plus difference in wrong ones."""
        return sum(abs(one - two) for one, two in (self.right, self.wrong))


def most_differing_images(
    first: Any, second: Any, thresholds: tuple[Mapping[int, float], Mapping[int, float]], count: int
) -> list[ImageDifference]:
    """Choose the images on which the counts of two models differ most.

    Args:
        first: Evaluated ``COCOeval`` of one model.
        second: That of the other, of the same annotations.
        thresholds: Least score of a box that is shown, by category id, of
            each model.
        count: Images at most, at least 1.

    Returns:
        The images, largest difference first, then by image id. If the models differ on fewer
        images, those on which they agree follow.

    Raises:
        ValueError: If ``count`` is less than 1.
    """
    if count < 1:
        raise ValueError(f'number of images is {count}; it must be at least 1')
    truth = first.cocoGt
    differences = []
    for image_id in sorted(truth.imgs):
        counts = []
        for evaluation, least in zip((first, second), thresholds):
            boxes = matched_boxes(truth, evaluation.cocoDt, image_id, least)
            right = sum(box.is_right for box in boxes)
            counts.append((right, len(boxes) - right))
        right, wrong = zip(*counts)
        differences.append(ImageDifference(image_id, right, wrong))
    return sorted(differences, key=lambda d: -d.size)[:count]
