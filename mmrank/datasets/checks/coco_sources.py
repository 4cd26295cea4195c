"""The COCO data sets that a config names, with their paths and classes."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mmengine.registry import DATASETS
from mmengine.utils import is_abs

from mmrank.errors import UserError


@dataclass(frozen=True)
class CocoSource:
    """One COCO data set in a config.

    Attributes:
        where: Its place, like ``train_dataloader.dataset``.
        ann_file: Path of the annotation file, joined with ``data_root``.
        image_dir: Folder of the images, joined with ``data_root``.
        classes: ``metainfo['classes']`` or the data set class's own; None where neither is known.
        classes_from: Where ``classes`` was found, for messages.
        skip_empty_images: Whether mmdet filters images without objects out.
        min_size: Shortest side in pixels that mmdet keeps.
        is_remote: Whether the files lie behind a file backend.
        federated: Whether images must say which classes they lack.
    """

    where: str
    ann_file: str
    image_dir: str
    classes: tuple[str, ...] | None
    classes_from: str
    skip_empty_images: bool
    min_size: int
    is_remote: bool
    federated: bool = False


#: Class that a data set of mmrank derives from; the registry holds a builder.
_HOSTS = {'CheckedCocoDataset': 'mmdet.CocoDataset', 'LVISDataset': 'mmdet.LVISV1Dataset'}


def find_sources(dataset: object, where: str, scope: str) -> Iterator[CocoSource]:
    """Find the COCO data sets of a config, through wrappers.

    Args:
        dataset: A data set's config; wrappers hold theirs under ``dataset``
            or ``datasets``.
        where: Its place in the config, for messages.
        scope: The config's ``default_scope``.

    Yields:
        Every data set that reads COCO detection files.

    Raises:
        UserError: If ``metainfo['classes']`` is a bare string.
    """
    if not isinstance(dataset, Mapping):
        return
    inner = dataset.get('datasets')
    if isinstance(inner, list | tuple):
        for index, item in enumerate(inner):
            yield from find_sources(item, f'{where}.datasets.{index}', scope)
    if isinstance(dataset.get('dataset'), Mapping):
        yield from find_sources(dataset['dataset'], f'{where}.dataset', scope)
    if 'ann_file' in dataset and _is_coco(dataset.get('type'), scope):
        yield _make_source(dataset, where, scope)


def _type_name(data_type: object) -> str:
    """The class name without scope, of a string or a class."""
    if isinstance(data_type, str):
        return data_type.rpartition('.')[2]
    return getattr(data_type, '__name__', '')


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
    # A subclass that reads files its own way (panoptic, captions) has its
    # own format; its requirements are unknown here.
    return coco is not None and all(
        getattr(found, name) is getattr(coco, name)
        for name in ('load_data_list', 'parse_data_info')
    )


def _make_source(dataset: Mapping, where: str, scope: str) -> CocoSource:
    root = dataset.get('data_root') or ''
    prefix = (dataset.get('data_prefix') or {}).get('img', '')
    paths = [
        path if is_abs(path) else os.path.join(root, path) for path in (dataset['ann_file'], prefix)
    ]
    backend = (dataset.get('backend_args') or {}).get('backend', 'local')
    filters = dataset.get('filter_cfg') or {}
    if dataset.get('test_mode'):
        filters = {}
    classes, origin = _find_classes(dataset, where, scope)
    return CocoSource(
        where=where,
        ann_file=paths[0],
        image_dir=paths[1],
        classes=classes,
        classes_from=origin,
        skip_empty_images=bool(filters.get('filter_empty_gt')),
        min_size=filters.get('min_size') or 0,
        is_remote=backend != 'local' or '://' in paths[0],
        federated=_type_name(dataset.get('type')) == 'LVISDataset',
    )


def _find_classes(dataset: Mapping, where: str, scope: str) -> tuple[tuple[str, ...] | None, str]:
    """Class names of a data set and where they come from."""
    metainfo = dataset.get('metainfo') or {}
    classes = metainfo.get('classes')
    if isinstance(classes, str):
        if not os.path.isfile(classes):
            raise UserError(
                f"{where}.metainfo['classes'] is the string {classes!r}, "
                'neither a sequence of names nor a file of names. Fix: write '
                f'a one-class tuple with a comma: classes=({classes!r},).'
            )
        try:
            with open(classes, encoding='utf-8') as lines:
                classes = [line.rstrip('\n\r') for line in lines]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{where}.metainfo['classes']={classes!r} cannot be read: "
                f'{error}. Fix: save the names as UTF-8, one a line.'
            ) from error
    if classes is not None:
        return tuple(classes), f"{where}.metainfo['classes']"
    data_type = dataset.get('type')
    host = _HOSTS.get(_type_name(data_type), data_type)
    known = getattr(_registered(host, scope), 'METAINFO', {})
    classes = known.get('classes')
    origin = f"the default of {_type_name(data_type)} ('metainfo' is not set)"
    return (None if classes is None else tuple(classes)), origin
