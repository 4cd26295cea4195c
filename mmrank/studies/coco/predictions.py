"""COCO prediction files: reading, and checks against the annotations.

Both COCO evaluators take a wrong file silently (a box of an unknown category is dropped, a negative
width scores zero), so a table would be made of nonsense. Here each of these is one error.
"""

import json
import os
from collections.abc import Container, Iterable
from pathlib import Path

import numpy as np

from mmrank.errors import UserError

KEYS = ('image_id', 'category_id', 'bbox', 'score')


def load_predictions(predictions: str | os.PathLike | list[dict]) -> list[dict]:
    """Read a COCO results file (``CocoMetric``'s ``*.bbox.json``).

    Args:
        predictions: File, or its content: dicts with ``image_id``, ``category_id``, ``bbox`` [x, y,
            width, height] in pixels and ``score``.

    Returns:
        A list of dicts to which the caller may add keys.

    Raises:
        FileNotFoundError: If there is no such file.
        UserError: If the content is not a list of predictions.
    """
    where = 'predictions'
    if not isinstance(predictions, list):
        where = f'prediction file {predictions}'
        predictions = _read(Path(predictions), where)
    is_list = isinstance(predictions, list)
    if not is_list or not all(
        isinstance(box, dict) and box.keys() >= set(KEYS) for box in predictions
    ):
        raise UserError(
            f'{where} must be a list of objects with the keys {", ".join(KEYS)}. Fix: pass the '
            '*.bbox.json that CocoMetric writes with outfile_prefix=..., not the annotation file.'
        )
    # Evaluators add keys such as id and area to each box.
    return [dict(box) for box in predictions]


def _read(path: Path, where: str) -> object:
    if not path.is_file():
        raise FileNotFoundError(
            f'{where} does not exist. Fix: pass the *.bbox.json that '
            'CocoMetric writes with outfile_prefix=...'
        )
    try:
        return json.loads(path.read_text('utf-8'))
    except ValueError as error:  # bad UTF-8 and bad JSON
        raise UserError(
            f'{where} ({path.stat().st_size:,} bytes) is not JSON: {error}. Fix: if the evaluation '
            'that writes it was interrupted, run it again.'
        ) from error


def check_predictions(
    boxes: list[dict],
    image_ids: Container[int],
    category_ids: Container[int],
    where: str = 'predictions',
) -> None:
    """Check that boxes belong to a set of annotations and are boxes.

    Args:
        boxes: See :func:`load_predictions`.
        image_ids: Those of the annotations.
        category_ids: Those of the annotations.
        where: What to call the boxes in an error.

    Raises:
        UserError: At the first kind of problem; the text has the
            field, values and what to do.
    """
    _check_ids(
        (box['image_id'] for box in boxes),
        image_ids,
        f'image_id of the {where}',
        'pass the annotation file of the split that was predicted.',
    )
    _check_ids(
        (box['category_id'] for box in boxes),
        category_ids,
        f'category_id of the {where}',
        'pass the annotation file that the model was evaluated on; labels '
        'that start at 0 must be mapped to category ids first.',
    )
    if not boxes:
        return
    try:
        numbers = np.array([[*box['bbox'], box['score']] for box in boxes], dtype=float)
        shape_is_right = numbers.shape == (len(boxes), 5)
    except (TypeError, ValueError):
        shape_is_right = False
    if not shape_is_right:
        raise UserError(
            f'bbox or score of the {where} is not always four numbers and one number. Fix: write '
            'bbox as [x, y, width, height] and score as a number.'
        )
    bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    if bad.size:
        raise UserError(
            f'{bad.size} of the {where} are not finite, the first at index {bad[0]}: '
            f'{_shown(boxes[bad[0]])}. Fix: check the model for NaN; such a box cannot be ranked.'
        )
    bad = np.flatnonzero((numbers[:, 2:4] < 0).any(axis=1))
    if bad.size:
        raise UserError(
            f'{bad.size} bbox of the {where} have a negative width or '
            f'height, the first at index {bad[0]}: {_shown(boxes[bad[0]])}. '
            'Fix: bbox is [x, y, width, height], not two corners.'
        )


def check_types(boxes: list[dict], where: str) -> None:
    """Check the JSON types that COCO's server asks for.

    Args:
        boxes: See :func:`load_predictions`.
        where: What to call the boxes in an error.

    Raises:
        UserError: At the first box with an id that is no integer, or with a box or score that is no
            number.
    """
    for index, box in enumerate(boxes):
        ids = [box['image_id'], box['category_id']]
        numbers = [*(box['bbox'] if isinstance(box['bbox'], list) else ['']), box['score']]
        if all(type(x) is int for x in ids) and all(type(x) in (int, float) for x in numbers):
            continue
        raise UserError(
            f'{where}, box {index}: {_shown(box)}. Fix: image_id and category_id have to be '
            'integers, bbox a list of four numbers and score a number'
        )


def _check_ids(ids: Iterable[int], known: Container[int], what: str, fix: str) -> None:
    strangers = [i for i in dict.fromkeys(ids) if i not in known]
    if strangers:
        raise UserError(
            f'{len(strangers)} {what} are not in the annotations, for '
            f'example {strangers[:3]}. Fix: {fix}'
        )


def _shown(box: dict) -> str:
    return ', '.join(f'{key} {box[key]}' for key in KEYS)
