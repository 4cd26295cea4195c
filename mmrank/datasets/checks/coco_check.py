"""Checks of the COCO data sets of a config, and of the model against them."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import DATASETS

from mmrank.annotations.check import read_checked
from mmrank.annotations.findings import CocoReport, config_datasets
from mmrank.annotations.splits import Split, compare_labels, difference, find_shared_images
from mmrank.errors import UserError

if TYPE_CHECKING:
    from mmdet.datasets import CocoDataset

# Parts whose `num_classes` counts something else: RPN finds objects, a semantic head stuff.
_OTHER_COUNTS = ('rpn_head', 'semantic_head', 'backbone', 'language_model')
_CLASS_HEADS = ('bbox_head', 'roi_head', 'mask_head')
_warn = partial(print_log, logger='current', level=30)


def check_config(
    cfg: Mapping | Config,
    splits: Sequence[str] = ('train', 'val', 'test'),
    verify_images: bool = False,
) -> list[CocoReport]:
    """Check all COCO data sets of a config, also in wrappers, and the model against them.

    Other data sets, and remote files, are passed over. Warnings go to the current logger. Beside
    training a missing file of the test split is a warning. Returns one report per annotation file.
    """
    counts = dict(_find_num_classes(cfg.get('model') or {}, 'model'))
    reports: dict[tuple, CocoReport] = {}
    parts: list[Split] = []
    for split in splits:
        own: list[Split] = []
        for where, dataset, options in _coco_datasets(cfg, split):
            classes = tuple(dataset.metainfo['classes'])
            if not _leaves_classes_out(cfg, split, classes):
                _compare_num_classes(counts, where, dataset)
            if options['image_dir'] is None:
                continue
            file = dataset.ann_file
            if split == 'test' and 'train' in splits and not os.path.exists(file):
                _warn(f'{where}: annotation file {file} does not exist; testing will need it')
                continue
            key = (file, *map(repr, options.values()))
            if key not in reports:
                try:
                    reports[key] = read_checked(file, verify_images=verify_images, **options)[1]
                except UserError as error:
                    raise UserError(f'{where}: {error}') from None
                if warnings := reports[key].warnings:
                    _warn(f'{where}: {reports[key].describe(warnings)}')
            report = reports[key]
            types = [x.get('type') for x in _metrics(cfg.get(f'{split}_evaluator'))]
            if dataset._indices is not None and {*types} & {'CocoMetric', 'mmdet.CocoMetric'}:
                raise UserError(
                    f"{where}.indices takes a part of the images, and type='CocoMetric' counts all",
                    "type='mmrank.CocoMetric' in the evaluator, or leave out indices",
                )
            if split == 'train':
                _refuse_empty_training(where, report, classes, options['skip_empty_images'])
            own.append(Split(where, options['image_dir'], classes, report, split == 'train'))
        if own:
            _compare_evaluator(cfg.get(f'{split}_evaluator'), f'{split}_evaluator', own)
        parts += own
    compare_labels(parts)
    for part, _ in find_shared_images(parts):
        _warn(f'{part.where}: {part.report.describe(part.report.problems[-1:])}')
    return list(reports.values())


def _coco_datasets(cfg: Mapping, split: str) -> Iterator[tuple[str, 'CocoDataset', dict]]:
    """Place, data set and options of :func:`inspect_coco` of each COCO data set of a split."""
    loader = cfg.get(f'{split}_dataloader') or {}
    places = [*config_datasets(loader.get('dataset'), f'{split}_dataloader.dataset')]
    scope = cfg.get('default_scope') or 'mmdet'
    # mmdet takes seconds to import, which a classifier need not wait for.
    types = [str(x.get('type')) for _, x in places if 'ann_file' in x]
    may_be_coco = any(scope != 'mmpretrain' or name.startswith('mmdet.') for name in types)
    if not may_be_coco or not find_spec('mmdet'):
        return
    from mmrank.datasets.checked_coco_dataset import coco_class, inspect_options

    # Results are only formatted, as for COCO's test-dev.
    is_formatted = any(x.get('format_only') for x in _configs(cfg.get(f'{split}_evaluator')))
    is_first = True
    with DATASETS.switch_scope_and_registry(scope) as registry:
        for where, settings in places:
            if coco_class(settings.get('type'), registry) is None:
                continue
            _check_classes(where, settings.get('metainfo') or {})
            dataset = registry.build({**settings, 'lazy_init': True, 'pipeline': []})
            options = inspect_options(dataset)
            pipelines = [x.get('pipeline') or () for place, x in places if where.startswith(place)]
            steps = [step for pipeline in pipelines for step in _configs(pipeline)]
            options['require_masks'] = any(step.get('with_mask') for step in steps)
            # The other halves of semi-supervised training have no annotations.
            is_spare = split == 'train' and not is_first and not options['skip_empty_images']
            options['require_annotations'] = not is_formatted and not is_spare
            is_first = False
            yield where, dataset, options


def _check_classes(where: str, metainfo: Mapping) -> None:
    """Refuse class names that mmdet would read as others."""
    if 'CLASSES' in metainfo:
        what = f"{where}.metainfo has 'CLASSES', which mmdet 3 does not read"
        raise UserError(what, 'classes=(...) in small letters')
    classes = metainfo.get('classes') or ()
    if isinstance(classes, str):
        if not os.path.isfile(classes):
            what = f"{where}.metainfo['classes'] is the text {classes!r}, and no file of names"
            raise UserError(what, f'a one-class tuple with a comma: classes=({classes!r},)')
        return
    twice = [name for name, count in Counter(classes).items() if count > 1]
    if twice:
        raise UserError(f"{where}.metainfo['classes'] has {twice[0]!r} twice", 'each name once')


def _leaves_classes_out(cfg: Mapping, split: str, classes: tuple) -> bool:
    """Whether a split has the first of the trained classes, and its metric drops the others."""
    dataset = (cfg.get('train_dataloader') or {}).get('dataset')
    trained = [x['metainfo'] for _, x in config_datasets(dataset, '') if x.get('metainfo')]
    names = tuple(trained[0].get('classes', ()))[: len(classes)] if trained else ()
    types = {str(x.get('type')) for x in _metrics(cfg.get(f'{split}_evaluator'))}
    return split != 'train' and types == {'mmrank.CocoMetric'} and names == classes


def _metrics(evaluator: object) -> list[Mapping]:
    return [x for part in _configs(evaluator) for x in _configs(part.get('metrics') or part)]


def _compare_evaluator(evaluator: object, name: str, splits: list[Split]) -> None:
    """Refuse an evaluator's file that is not the data set's: image 7 may be another image 7."""
    # A data set that is repeated, or in parts, is one.
    splits = [*{os.path.realpath(x.report.ann_file): x for x in splits}.values()]
    for part in _configs(evaluator):
        metrics = _configs(part.get('metrics') or part)
        is_each = str(part.get('type')).endswith('MultiDatasetsEvaluator')
        is_each = is_each and len(metrics) == len(splits)
        for index, metric in enumerate(metrics):
            path = metric.get('ann_file')
            own = [splits[index]] if is_each else splits
            if not isinstance(path, str) or not os.path.isfile(path):
                continue
            if {os.path.realpath(x.report.ann_file) for x in own} == {os.path.realpath(path)}:
                continue
            report = read_checked(path, require_annotations=False)[1]
            compare_labels([*own, Split(f'{name}.ann_file', '', own[0].classes, report, False)])
            what = difference(report, [x.report for x in own])
            if what:
                places = ' and '.join(f'{x.where}.ann_file={x.report.ann_file!r}' for x in own)
                raise UserError(
                    f'{name}.ann_file={path!r} has other images or objects than {places}: {what}. '
                    'Fix: one file with all images and objects of the data sets'
                )


def _configs(value: object) -> list[Mapping]:
    """The configs of a list, or the one that stands in its place."""
    parts = value if isinstance(value, list | tuple) else [value]
    return [part for part in parts if isinstance(part, Mapping)]


def _refuse_empty_training(
    where: str, report: CocoReport, classes: Sequence[str], are_empty_dropped: bool
) -> None:
    counts = [x for name, x in report.counts.items() if name in classes]
    if any(count.total for count in counts):
        return
    if any(count.crowd for count in counts):
        what = f'{where}: {report.ann_file}: each object has iscrowd=1, and is not trained on'
        raise UserError(what, 'iscrowd=0 of single objects')
    if are_empty_dropped:
        raise UserError(
            f'{where}: annotation file {report.ann_file} has no object of the classes {classes}, '
            'and filter_cfg.filter_empty_gt=True drops images without objects',
            'set ann_file to the file that holds the boxes, or correct metainfo',
        )


def _find_num_classes(node: object, path: str) -> Iterator[tuple[str, int]]:
    """Yield (path, num_classes) of every head that names object classes."""
    node = dict(enumerate(node)) if isinstance(node, list | tuple) else node
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == 'num_classes':
                if any(head in path.split('.') for head in _CLASS_HEADS):
                    yield f'{path}.{key}', value
            elif key not in _OTHER_COUNTS:
                yield from _find_num_classes(value, f'{path}.{key}')


def _compare_num_classes(counts: dict[str, int], where: str, dataset: 'CocoDataset') -> None:
    classes = dataset.metainfo['classes']
    wrong = [f'{path} is {number}' for path, number in counts.items() if number != len(classes)]
    if wrong:
        is_default = classes == type(dataset).METAINFO.get('classes')
        source = "the default ('metainfo' is not set)" if is_default else "metainfo['classes']"
        raise UserError(
            f'num_classes disagrees with the data: {", ".join(wrong)}, but {where} has '
            f'{len(classes)} classes ({", ".join(classes)[:80]}) by {source}. Fix: set '
            f'num_classes={len(classes)}, or metainfo=dict(classes=...) of the data set'
        )
