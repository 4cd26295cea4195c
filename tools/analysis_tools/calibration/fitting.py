"""Maps from score to probability, fitted by scikit-learn."""

from collections.abc import Callable

import numpy as np

from mmrank.calibration.calibration_file import LEAST_SCALE, Calibration, ClassMap
from mmrank.errors import UserError

from .splits import JudgedScores


def fit_calibration(
    judged: JudgedScores,
    method: str = 'isotonic',
    iou: float = 0.5,
    min_each: int = 10,
    pooled: bool = False,
    weights_sha256: str | None = None,
) -> Calibration:
    """Fit a map for each class; a class with too few scores gets the map of all together."""
    targets = judged.is_right.double().numpy()
    fit = METHODS[method]
    scores = judged.scores.double().numpy()
    labels = judged.labels.numpy()
    shared = None
    maps = []
    for label, name in enumerate(judged.classes):
        mine = labels == label
        right = int(judged.is_right.numpy()[mine].sum())
        enough = min(right, int(mine.sum()) - right) >= max(min_each, 1)
        own = fit(scores[mine], targets[mine]) if enough and not pooled else None
        if own is None and shared is None:
            shared = _fit_shared(judged, fit, scores, targets)
        maps.append(ClassMap(name, int(mine.sum()), right, own is None, **(own or shared)))
    of_boxes = judged.task == 'detection'
    words = f'precision at IoU {iou:g}' if of_boxes else 'share of samples with the class'
    return Calibration(judged.task, method, words, tuple(maps), weights_sha256)


def _fit_shared(judged: JudgedScores, fit: Callable, scores, targets) -> dict:
    """The map of all classes together."""
    what = 'box' if judged.task == 'detection' else 'label'
    right = int(judged.is_right.sum())
    if right in (0, len(judged.is_right)):
        raise UserError(
            f'{"no" if right == 0 else "every"} {what} of the validation split is right, of '
            f'{len(judged.is_right)}: there is nothing to fit. Fix: pass the predictions of a '
            'trained model on its validation split'
        )
    shared = fit(scores, targets)
    if shared is None:
        raise UserError(
            f'higher scores are not more often right, of {len(scores)} scores: no map that keeps '
            'their order makes probabilities of them. Fix: check that predictions and annotations '
            'are of one split; method isotonic fits any scores'
        )
    return shared


def _fit_isotonic(scores: np.ndarray, targets: np.ndarray) -> dict:
    """Ends of the blocks of equal probability."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(scores, targets)
    return dict(
        scores=tuple(fitted.X_thresholds_.tolist()),
        probabilities=tuple(fitted.y_thresholds_.tolist()),
    )


def _fit_platt(scores: np.ndarray, targets: np.ndarray) -> dict | None:
    """A logistic fit to the logit; None if the scores do not rise with the targets."""
    from sklearn.linear_model import LogisticRegression

    # The targets of Platt 1999, which a sigmoid can reach.
    right = targets.sum()
    lowest = 1 / (len(targets) - right + 2)
    highest = (right + 1) / (right + 2)
    soft = lowest + targets * (highest - lowest)
    logits = np.clip(scores, 2.0**-150, 1 - 2.0**-25)
    logits = np.log(logits) - np.log1p(-logits)
    model = LogisticRegression(C=np.inf, solver='newton-cholesky', tol=1e-10, max_iter=200)
    # A soft target is two samples with weights.
    model.fit(
        np.concatenate([logits, logits])[:, None],
        np.repeat([1, 0], len(logits)),
        np.concatenate([soft, 1 - soft]),
    )
    scale = float(model.coef_[0, 0])
    if scale < LEAST_SCALE:
        return None
    return dict(scale=scale, offset=float(model.intercept_[0]))


METHODS = {'isotonic': _fit_isotonic, 'platt': _fit_platt}
