"""Indices of COCO documents, and the evaluators that take them."""

import contextlib
import io
import warnings
from collections import Counter
from collections.abc import Iterable

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def fast_evaluator() -> type:
    """The evaluation of faster-coco-eval, or of pycocotools where that is not installed."""
    try:
        from faster_coco_eval import COCOeval_faster
    except ImportError:
        return COCOeval
    return COCOeval_faster


def coco_index(document: dict) -> COCO:
    """An index of a checked document, without the prints of its constructor."""
    index = COCO()
    index.dataset = document
    with contextlib.redirect_stdout(io.StringIO()):
        index.createIndex()
    return index


def number_objects(document: dict) -> dict:
    """Give objects ids from 1, in place: evaluators mark an unmatched box by the id 0."""
    for number, ann in enumerate(document.get('annotations', ()), 1):
        ann['id'] = number
    return document


def are_plain_ids(document: dict) -> bool:
    """Whether the ids of images and classes are whole numbers that doubles hold."""
    entries = (*document['images'], *document.get('categories', ()))
    return all(type(x['id']) is int and abs(x['id']) <= 1 << 53 for x in entries)


def warn_of_limit(document: dict, limit: int = 100) -> None:
    """Warn of images with more objects of a class than detections that mAP counts."""
    objects = Counter(
        (ann['image_id'], ann['category_id'])
        for ann in document.get('annotations', ())
        if not ann.get('iscrowd')
    )
    (image_id, _), most = max(objects.items(), key=lambda x: x[1], default=((None, None), 0))
    if most > limit:
        warnings.warn(
            f'image_id {image_id} has {most} objects of one class, more than {limit}, and mAP '
            f"counts {limit} detections. Fix: type='mmrank.CocoMetric', proposal_nums=(1, 10, "
            f'{most}) and test_cfg.max_per_img={most}, or compare it on this file alone',
            stacklevel=3,
        )


def warn_of_equal_scores(detections: Iterable[tuple[object, float]]) -> None:
    """Warn of detections, (class, score), that have one score in each class."""
    detections = [*detections]
    kinds = {*detections}
    if len(detections) > len(kinds) == len({name for name, _ in kinds}):
        warnings.warn(
            'the detections of each class have equal scores, so that AP depends on their order '
            'alone. Fix: write the scores of the model, or compare recall',
            stacklevel=3,
        )
