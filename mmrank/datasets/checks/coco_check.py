"""Checks of COCO files and of the configs that train on them."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mmengine.logging import print_log
from mmengine.registry import DATASETS
from mmengine.utils import is_abs

from mmrank.datasets.checks.coco_inspect import check_coco_file
from mmrank.datasets.checks.coco_report import CocoReport
from mmrank.datasets.checks.coco_splits import Split, compare_labels, difference, find_shared_images
from mmrank.datasets.checks.data_report import config_datasets
from mmrank.errors import UserError

# Parts whose `num_classes` counts something else: RPN finds objects, a semantic head stuff.
_OTHER_COUNTS = ('rpn_head', 'semantic_head', 'backbone', 'language_model')
_CLASS_HEADS = ('bbox_head', 'roi_head', 'mask_head')
#: Class that a data set of mmrank derives from; the registry holds a builder.
_HOSTS = {'CheckedCocoDataset': 'mmdet.CocoDataset', 'LVISDataset': 'mmdet.LVISV1Dataset'}
_warn = partial(print_log, logger='current', level=30)


@dataclass
class _Source:
    """One COCO data set in a config; its paths are joined with ``data_root``."""

    where: str  # its place in the config, like train_dataloader.dataset
    ann_file: str
    image_dir: str
    is_remote: bool  # behind a file backend
    classes: tuple[str, ...] | None  # metainfo['classes'] or the class's own; None: unknown
    classes_from: str  # where they were found, for messages
    options: dict  # of inspect_coco


def check_config(
    cfg: Mapping, splits: Sequence[str] = ('train', 'val', 'test'), verify_images: bool = False
) -> list[CocoReport]:
    """Check all COCO data sets of a config, also in wrappers, and the model against them.

    Data sets that are not in COCO form, or lie behind a remote file backend, are passed over.
    Warnings go to the current logger. Where training is checked too, a missing annotation file of
    the test split is a warning. Returns one report per annotation file.
    """
    counts = dict(_find_num_classes(cfg.get('model') or {}, 'model'))
    reports: dict[tuple, CocoReport] = {}
    parts: list[Split] = []
    for split in splits:
        own: list[Split] = []
        for source in _sources(cfg, split, verify_images):
            _compare_num_classes(counts, source)
            if source.is_remote:
                continue
            if split == 'test' and 'train' in splits and not os.path.exists(source.ann_file):
                text = f'annotation file {source.ann_file} does not exist; testing will need it'
                _warn(f'{source.where}: {text}')
                continue
            read_as = source.options['federated'], source.options['require_masks']
            key = source.ann_file, source.image_dir, source.classes, *read_as
            if key not in reports:
                reports[key] = _check_source(source)
            report = reports[key]
            if split == 'train':
                _refuse_empty_training(source, report)
            own.append(
                Split(source.where, source.image_dir, source.classes, report, split == 'train')
            )
        if own:
            _compare_evaluator(cfg.get(f'{split}_evaluator'), f'{split}_evaluator', own)
        parts += own
    compare_labels(parts)
    for part in find_shared_images(parts):
        _warn(f'{part.where}: {part.report.describe(part.report.problems[-1:])}')
    return list(reports.values())


def _sources(cfg: Mapping, split: str, verify_images: bool) -> Iterator[_Source]:
    """The COCO data sets of a split, inside of their wrappers."""
    scope = cfg.get('default_scope') or 'mmdet'
    outer = (cfg.get(f'{split}_dataloader') or {}).get('dataset')
    places = [*config_datasets(outer, f'{split}_dataloader.dataset')]
    # Results are only formatted, as for COCO's test-dev.
    is_formatted = any(x.get('format_only') for x in _configs(cfg.get(f'{split}_evaluator')))
    found = [
        (where, dataset)
        for where, dataset in places
        if 'ann_file' in dataset and _is_coco(dataset.get('type'), scope)
    ]
    for index, (where, dataset) in enumerate(found):
        pipelines = [x.get('pipeline') or () for place, x in places if where.startswith(place)]
        filters = (not dataset.get('test_mode') and dataset.get('filter_cfg')) or {}
        is_empty_dropped = bool(filters.get('filter_empty_gt'))
        # The second half of semi-supervised training has no annotations.
        is_spare = split == 'train' and index > 0 and not is_empty_dropped
        options = dict(
            verify_images=verify_images,
            require_annotations=not is_formatted and not is_spare,
            require_masks=any(
                step.get('with_mask') and _type_name(step.get('type')) == 'LoadAnnotations'
                for pipeline in pipelines
                for step in _configs(pipeline)
            ),
            skip_empty_images=is_empty_dropped,
            min_size=filters.get('min_size') or 0,
            federated=_type_name(dataset.get('type')) == 'LVISDataset',
        )
        root = dataset.get('data_root') or ''
        prefix = (dataset.get('data_prefix') or {}).get('img', '')
        paths = [x if is_abs(x) else os.path.join(root, x) for x in (dataset['ann_file'], prefix)]
        backend = (dataset.get('backend_args') or {}).get('backend', 'local')
        is_remote = backend != 'local' or '://' in paths[0]
        yield _Source(where, *paths, is_remote, *_find_classes(dataset, where, scope), options)


def _check_source(source: _Source) -> CocoReport:
    files = source.ann_file, source.image_dir
    try:
        report = check_coco_file(*files, classes=source.classes, **source.options)
    except UserError as error:
        raise UserError(f'{source.where}: {error}') from None
    if report.warnings:
        _warn(f'{source.where}: {report.describe(report.warnings)}')
    return report


def _compare_evaluator(evaluator: object, name: str, splits: list[Split]) -> None:
    """Refuse an evaluator's file that is not the data set's: image 7 may be another image 7."""
    # A data set that is repeated, or in parts, is one.
    splits = [*{os.path.realpath(x.report.ann_file): x for x in splits}.values()]
    for part in _configs(evaluator):
        metrics = _configs(part.get('metrics') or part)
        is_each = _type_name(part.get('type')) == 'MultiDatasetsEvaluator'
        is_each = is_each and len(metrics) == len(splits)
        for index, metric in enumerate(metrics):
            path = metric.get('ann_file')
            own = [splits[index]] if is_each else splits
            if not isinstance(path, str) or not os.path.isfile(path):
                continue
            if {os.path.realpath(x.report.ann_file) for x in own} == {os.path.realpath(path)}:
                continue
            report = check_coco_file(path, require_annotations=False)
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


def _refuse_empty_training(source: _Source, report: CocoReport) -> None:
    counts = [x for name, x in report.counts.items() if name in (source.classes or report.counts)]
    if any(count.total for count in counts):
        return
    file = f'{source.where}: annotation file {source.ann_file}'
    if any(count.crowd for count in counts):
        raise UserError(
            f'{file}: each object has iscrowd=1, and a crowd is not trained on. Fix: iscrowd=0 of '
            'single objects'
        )
    if source.options['skip_empty_images']:
        raise UserError(
            f'{file} has no object of the classes {source.classes}, and '
            'filter_cfg.filter_empty_gt=True drops images without objects: nothing is left to '
            'train on. Fix: set ann_file to the file that holds the boxes, or correct metainfo'
        )


def _find_num_classes(node: object, path: str) -> Iterator[tuple[str, int]]:
    """Yield (path, num_classes) of every head that names object classes."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == 'num_classes':
                if any(head in path.split('.') for head in _CLASS_HEADS):
                    yield f'{path}.{key}', value
            elif key not in _OTHER_COUNTS:
                yield from _find_num_classes(value, f'{path}.{key}')
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _find_num_classes(value, f'{path}.{index}')


def _compare_num_classes(counts: dict[str, int], source: _Source) -> None:
    if source.classes is None:
        return
    expected = len(source.classes)
    wrong = [f'{path} is {number}' for path, number in counts.items() if number != expected]
    if wrong:
        raise UserError(
            f'num_classes disagrees with the data: {", ".join(wrong)}, but {source.where} has '
            f'{expected} classes ({", ".join(source.classes)[:80]}) by {source.classes_from}. Fix: '
            f'set num_classes={expected}, or metainfo=dict(classes=...) of the data set if they '
            'are wrong'
        )


def _type_name(data_type: object) -> str:
    """The class name without scope, of a string or a class."""
    return str(getattr(data_type, '__name__', data_type)).rpartition('.')[2]


def _registered(data_type: object, scope: str) -> object:
    """The data set class a config means; None if it cannot be had."""
    if not isinstance(data_type, str):
        return data_type
    with DATASETS.switch_scope_and_registry(scope) as registry:
        return registry.get(data_type)


def _is_coco(data_type: object, scope: str) -> bool:
    """Whether a data set type reads COCO detection files."""
    if _type_name(data_type) in ('CocoDataset', *_HOSTS):
        return True
    found = _registered(data_type, scope)
    bases = getattr(found, '__mro__', ())
    coco = next((b for b in bases if b.__name__ == 'CocoDataset'), None)
    # A subclass that reads files its own way (panoptic, captions) has its own format.
    return coco is not None and all(
        getattr(found, name) is getattr(coco, name)
        for name in ('load_data_list', 'parse_data_info')
    )


def _find_classes(dataset: Mapping, where: str, scope: str) -> tuple[tuple[str, ...] | None, str]:
    """Class names of a data set and where they come from."""
    metainfo = dataset.get('metainfo') or {}
    classes = metainfo.get('classes')
    if classes is None and 'CLASSES' in metainfo:
        raise UserError(
            f"{where}.metainfo has 'CLASSES', which mmdet 3 does not read: it would take the "
            'classes of COCO. Fix: classes=(...) in small letters'
        )
    if classes is None:
        data_type = _type_name(dataset.get('type'))
        host = _registered(_HOSTS.get(data_type, dataset.get('type')), scope)
        classes = getattr(host, 'METAINFO', {}).get('classes')
        origin = f"the default of {data_type} ('metainfo' is not set)"
        return (None if classes is None else tuple(classes)), origin
    place = f"{where}.metainfo['classes']"
    if isinstance(classes, str):
        try:
            with open(classes, encoding='utf-8') as lines:
                classes = [line.rstrip('\n\r') for line in lines]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f'{place} is the text {classes!r}, and no file of names in UTF-8 ({error}). Fix: '
                f'a one-class tuple with a comma: classes=({classes!r},)'
            ) from error
    twice = [name for name, count in Counter(classes).items() if count > 1]
    if twice:
        raise UserError(
            f'{place} has {twice[0]!r} twice, so that two labels are one class. Fix: each name once'
        )
    return tuple(classes), place
