"""What a finished training is known by: its config, and the content of the files that it reads."""

import copy
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mmengine.config import Config

from mmrank.annotations.images import IMAGE_SUFFIXES
from mmrank.files import find_files
from mmrank.runners.config import parsed_options, read_config

#: Folders in which trainings write pictures of their own.
_OUTPUTS = 'work_dirs'
#: Bytes of the start, and of the end, by which an image is known: all would take minutes for COCO.
_END = 4096


def identity(config: str, options: Mapping[str, str], *more: str) -> str:
    """Eight hexadecimal digits of all that decides what a training comes to.

    These are the settings, the content of each file that one of them names (annotations of data
    sets and evaluators, names of classes, local weights), and names, sizes and ends of the images:
    a copy of the data is the same data.

    Args:
        config: The config file.
        options: Settings that override it, as the command line has them.
        more: What else makes a training another one.
    """
    cfg = copy.deepcopy(_read(config, _time(config)))
    cfg.merge_from_dict(parsed_options(options))
    return digest_of(cfg.to_dict(), *more)


def digest_of(settings: Mapping, *more: str) -> str:
    """The digits of :func:`identity` for the settings of a config that is read."""
    content = [settings, more, [*_contents(settings, '')]]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_settings(config: str) -> dict:
    """The settings of a config with its bases, read once."""
    return _read(config, _time(config)).to_dict()


def _time(path: str) -> float:
    return os.path.getmtime(path) if os.path.exists(path) else 0.0


@functools.cache
def _read(config: str, _changed: float) -> Config:
    # Its modules are for the process that trains.
    return read_config(config, import_modules=False)


def _contents(node: object, root: str) -> Iterator[object]:
    """What the files hold that settings name, from the working folder or their ``data_root``."""
    if isinstance(node, Mapping):
        root = str(node.get('data_root') or root)
        if 'data_root' in node or 'data_prefix' in node:
            yield from _images(node, root)
        for value in node.values():
            yield from _contents(value, root)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _contents(value, root)
    elif isinstance(node, str):
        for path in dict.fromkeys((os.path.join(root, node), node)):
            if os.path.isfile(path):
                yield _digest(path, *_stamp(path))


def _images(dataset: Mapping, root: str) -> Iterator[tuple]:
    """Name, size and ends of each image of a data set."""
    prefix = dataset.get('data_prefix') or ''
    prefixes = prefix.values() if isinstance(prefix, Mapping) else [prefix]
    folders = [os.path.join(root, str(x)) for x in prefixes]
    ann_file = os.path.join(root, str(dataset.get('ann_file') or ''))
    listed = _listed(ann_file, *_stamp(ann_file)) if os.path.isfile(ann_file) else None
    for folder in filter(None, folders):
        names = listed
        if names is None:
            found = find_files(folder, IMAGE_SUFFIXES)[0] if os.path.isdir(folder) else []
            names = [name for name in found if _OUTPUTS not in name.split('/')]
        for name in names:
            path = os.path.join(folder, name)
            yield name, _ends(path, *_stamp(path)) if os.path.isfile(path) else ''


@functools.cache
def _listed(ann_file: str, _size: int, _time: int) -> list[str] | None:
    """Names of the images of a COCO file; None for another file."""
    try:
        content = json.loads(Path(ann_file).read_bytes())
        return [str(image['file_name']) for image in content['images']]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _stamp(path: str) -> tuple[int, int]:
    """Size and time of a file."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


@functools.cache
def _ends(path: str, size: int, _time: int) -> str:
    """Size, and digest of the first and the last bytes, of an image."""
    with open(path, 'rb') as file:
        content = hashlib.sha256(file.read(_END))
        file.seek(max(size - _END, 0))
        content.update(file.read(_END))
    return f'{size} {content.hexdigest()}'


@functools.cache
def _digest(path: str, _size: int, _time: int) -> str:
    """Digest of a file, which is read again in this process where its stamp has changed."""
    content = hashlib.sha256()
    with open(path, 'rb') as file:
        while block := file.read(2**20):
            content.update(block)
    return content.hexdigest()
