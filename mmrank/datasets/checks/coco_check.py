"""Checks of COCO files and of the configs that train on them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from mmengine.logging import print_log

from mmrank.datasets.checks.coco_inspect import inspect_coco_file
from mmrank.datasets.checks.coco_report import CocoReport
from mmrank.datasets.checks.coco_sources import CocoSource, find_sources
from mmrank.errors import UserError

__all__ = ['CocoReport', 'check_coco_file', 'check_config']

# Parts of a model whose `num_classes` counts something else: RPN tells
# object from background, a semantic head counts stuff classes.
_OTHER_COUNTS = ('rpn_head', 'semantic_head', 'backbone', 'language_model')
_CLASS_HEADS = ('bbox_head', 'roi_head', 'mask_head')


def check_coco_file(
    ann_file: str | os.PathLike, image_dir: str | os.PathLike | None = None, **options: object
) -> CocoReport:
    """Check an annotation file and refuse a bad one.

    Images without objects, one class only and crowds are fine.

    Args:
        ann_file: COCO JSON file.
        image_dir: Folder of its images; None looks for no image file.
        **options: ``classes``, ``verify_images``, ``skip_empty_images``, ``min_size``,
            ``require_annotations``, ``max_examples``, ``federated``: see
            :func:`mmrank.datasets.checks.coco_inspect.inspect_coco`.

    Returns:
        The report of a good file, perhaps with warnings.

    Raises:
        UserError: If the file cannot be read or has an error. The
            message names every kind of problem with its count, the first few places and the fix.
    """
    report = inspect_coco_file(ann_file, image_dir, **options)
    report.raise_if_bad()
    return report


def check_config(
    cfg: Mapping, splits: Sequence[str] = ('train', 'val', 'test'), verify_images: bool = False
) -> list[CocoReport]:
    """Check all COCO data sets of a config, and the model against them.

    Goes through data set wrappers (``dataset`` and ``datasets`` keys). Data sets that are not in
    COCO form, or lie behind a remote file backend, are passed over. Warnings go to the current
    logger.

    Args:
        cfg: An mmengine ``Config`` or dict.
        splits: Data loaders to check. The test split is only needed by testing, so where training
            is checked too, a missing test annotation file is a warning.
        verify_images: Also decode each image and compare its size.

    Returns:
        One report per annotation file checked.

    Raises:
        UserError: If a file is bad, ``metainfo['classes']`` does not
            fit it, or ``num_classes`` of a head differs from the number of classes.
    """
    scope = cfg.get('default_scope') or 'mmdet'
    counts = dict(_find_num_classes(cfg.get('model') or {}, 'model'))
    reports: dict[tuple, CocoReport] = {}
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        if not loader:
            continue
        evaluator = cfg.get(f'{split}_evaluator')
        for source in find_sources(loader.get('dataset'), f'{split}_dataloader.dataset', scope):
            _compare_num_classes(counts, source)
            if source.is_remote:
                continue
            is_spare = split == 'test' and 'train' in splits
            if is_spare and not os.path.exists(source.ann_file):
                _warn(
                    f'{source.where}: annotation file {source.ann_file} '
                    'does not exist; testing will need it'
                )
                continue
            key = (source.ann_file, source.image_dir, source.classes, source.federated)
            if key not in reports:
                reports[key] = _check_source(source, verify_images, _has_labels(evaluator))
            _refuse_empty_training(split, source, reports[key])
    return list(reports.values())


def _check_source(source: CocoSource, verify_images: bool, require_annotations: bool) -> CocoReport:
    try:
        report = check_coco_file(
            source.ann_file,
            source.image_dir,
            classes=source.classes,
            verify_images=verify_images,
            skip_empty_images=source.skip_empty_images,
            min_size=source.min_size,
            require_annotations=require_annotations,
            federated=source.federated,
        )
    except UserError as error:
        raise UserError(f'{source.where}: {error}') from None
    if report.warnings:
        _warn(f'{source.where}: {report.describe(report.warnings)}')
    return report


_warn = partial(print_log, logger='current', level=30)


def _has_labels(evaluator: object) -> bool:
    """False where results are only formatted, as for COCO's test-dev."""
    parts = evaluator if isinstance(evaluator, list | tuple) else [evaluator]
    return not any(part.get('format_only') for part in parts if isinstance(part, Mapping))


def _refuse_empty_training(split: str, source: CocoSource, report: CocoReport) -> None:
    wanted = source.classes or tuple(report.counts)
    objects = sum(report.counts[n].total for n in wanted if n in report.counts)
    if split == 'train' and source.skip_empty_images and not objects:
        raise UserError(
            f'{source.where}: annotation file {source.ann_file} has no object of the classes '
            f'{wanted[:5]}, and filter_cfg.filter_empty_gt=True drops images without objects: '
            'nothing is left to train on. Fix: set ann_file to the file that holds the boxes, or '
            'correct metainfo.'
        )


def _find_num_classes(node: object, path: str) -> Iterator[tuple[str, int]]:
    """Yield (path, num_classes) of every head that names object classes."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in _OTHER_COUNTS:
                continue
            here = f'{path}.{key}'
            if key == 'num_classes':
                if any(head in path.split('.') for head in _CLASS_HEADS):
                    yield here, value
            else:
                yield from _find_num_classes(value, here)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _find_num_classes(value, f'{path}.{index}')


def _compare_num_classes(counts: dict[str, int], source: CocoSource) -> None:
    if source.classes is None:
        return
    expected = len(source.classes)
    wrong = {p: n for p, n in counts.items() if n != expected}
    if wrong:
        values = ', '.join(f'{path} is {n}' for path, n in wrong.items())
        names = ', '.join(source.classes[:6])
        names += ', ...' if expected > 6 else ''
        raise UserError(
            f'num_classes disagrees with the data: {values}, but {source.where} has {expected} '
            f'classes ({names}) by {source.classes_from}. Fix: set num_classes={expected}, or '
            'metainfo=dict(classes=...) of the data set if they are wrong.'
        )
