"""Two detectors on the images where they differ most."""

import os
from collections.abc import Mapping
from pathlib import Path

from pycocotools.cocoeval import COCOeval

from mmrank.evaluation.box_evaluation import best_f1_thresholds, evaluate_boxes
from research.coco.pictures.detections import draw_detections
from research.coco.pictures.differing_images import ImageDifference, most_differing_images


def draw_side_by_side(
    predictions: Mapping[str, Path],
    ann_file: str | os.PathLike,
    image_dir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    score_thr: float | None = None,
    num_images: int = 6,
) -> tuple[Path, list[ImageDifference]]:
    """Draw truth and two models on the images where they differ most.

    They differ by the number of right boxes plus that of wrong ones, among
    the boxes shown.

    Args:
        predictions: Prediction files of two models, by name.
        ann_file: COCO annotation file.
        image_dir: Folder of its images.
        path: Image file to write.
        score_thr: Least score of a box that is shown; None takes each
            model's best-F1 score per class, which is fair where scores are ordered but not
            calibrated.
        num_images: Images, at least 1.

    Returns:
        ``path``, and what the models show on each image.

    Raises:
        ValueError: If these are not two models, or see
            :func:`~research.coco.pictures.detections.draw_detections`.
        FileNotFoundError: If an image file is missing.
    """
    if len(predictions) != 2:
        raise ValueError(f'a side by side needs two models, not {list(predictions)}')
    # pycocotools' own evaluation, which keeps the matches per image.
    models: dict[str, COCOeval] = {}
    for name, file in predictions.items():
        truth = models[next(iter(models))].cocoGt if models else ann_file
        models[name] = evaluate_boxes(truth, file)
    first, second = models.values()
    if score_thr is None:
        thresholds = best_f1_thresholds(first), best_f1_thresholds(second)
    else:
        thresholds = (dict.fromkeys(first.cocoGt.cats, score_thr),) * 2
    chosen = most_differing_images(first, second, thresholds, num_images)
    drawn = draw_detections(
        models,
        image_dir,
        path,
        image_ids=[difference.image_id for difference in chosen],
        score_thr=score_thr,
    )
    return drawn, chosen
