"""Maps from score to probability, fitted by scikit-learn."""

import numpy as np
from sklearn.isotonic import IsotonicRegression

from mmrank.calibration.calibration_file import Calibration, ClassMap
from mmrank.errors import UserError

from .splits import JudgedScores


def fit_calibration(
    judged: JudgedScores,
    iou: float = 0.5,
    min_each: int = 10,
    pooled: bool = False,
    weights_sha256: str | None = None,
) -> Calibration:
    """Fit a map for each class; a class with too few scores gets the map of all together."""
    targets = judged.is_right.double().numpy()
    scores = judged.scores.double().numpy()
    labels = judged.labels.numpy()
    shared = None
    maps = []
    for label, name in enumerate(judged.classes):
        mine = labels == label
        right = int(judged.is_right.numpy()[mine].sum())
        is_shared = pooled or min(right, int(mine.sum()) - right) < max(min_each, 1)
        if is_shared and shared is None:
            total = int(judged.is_right.sum())
            if total in (0, len(targets)):
                what = 'box' if judged.task == 'detection' else 'label'
                raise UserError(
                    f'{"no" if total == 0 else "every"} {what} of the validation split is right, '
                    f'of {len(targets)}: there is nothing to fit. Fix: pass the predictions of a '
                    'trained model on its validation split'
                )
            shared = _fit(scores, targets)
        fitted = shared if is_shared else _fit(scores[mine], targets[mine])
        maps.append(ClassMap(name, int(mine.sum()), right, pooled=is_shared, **fitted))
    of_boxes = judged.task == 'detection'
    words = f'precision at IoU {iou:g}' if of_boxes else 'share of samples with the class'
    return Calibration(judged.task, words, tuple(maps), weights_sha256)


def _fit(scores: np.ndarray, targets: np.ndarray) -> dict:
    """Ends of the blocks of equal probability."""
    fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(scores, targets)
    return dict(
        scores=tuple(fitted.X_thresholds_.tolist()),
        probabilities=tuple(fitted.y_thresholds_.tolist()),
    )
