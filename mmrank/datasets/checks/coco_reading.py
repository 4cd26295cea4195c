"""Reading of COCO files with errors that name what is wrong with the file."""

import gc
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrank.errors import UserError

_CONVERT = (
    'name the JSON file in the form of COCO, or convert YOLO, VOC or CSV to it by '
    'tools/dataset_converters/to_coco.py'
)
#: What a file is that is not JSON, by how it begins, and the fix; the first that fits counts.
_OTHER_FORMS = (
    (rb'\s*\Z', 'is empty', 'copy or download it again'),
    (rb'\x80|PK\x03\x04.{,80}data\.pkl', 'is not JSON but a checkpoint', _CONVERT),
    (rb'\x1f\x8b|PK\x03\x04', 'is compressed', 'unpack it first'),
    (rb'\x89PNG|\xff\xd8\xff|BM|RIFF', 'is not JSON but an image', _CONVERT),
    (
        rb'version https://git-lfs',
        'is a Git LFS pointer',
        'run `git lfs pull` to fetch the content',
    ),
    (
        rb'\s*<(!doctype )?html',
        'is not JSON but an HTML page, perhaps of an error while downloading',
        _CONVERT,
    ),
    (rb'\s*<', 'is not JSON but XML, as VOC and CVAT have it', _CONVERT),
    (rb'\s*\d+( [\d.]+){4,}\s', 'is not JSON but a text in the form of YOLO', _CONVERT),
    (rb'\s*[^\s\[{"][^\n,]*,[^\n]*,', 'is not JSON but CSV', _CONVERT),
    (rb'\s*(?!true|false|null|nan|infinity)[a-z]', 'is not JSON but another text', _CONVERT),
)


def read_coco_json(ann_file: str | os.PathLike) -> dict:
    """Read a COCO JSON file; a ``UserError`` says why it cannot be read."""
    path = Path(ann_file)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(_unreadable(path, error)) from error
    try:
        document = parse_json(data.decode('utf-8-sig'))
    except ValueError as error:
        raise UserError(f'annotation file {path} {_not_json(data, error)}') from error
    if isinstance(document, dict):
        return document
    is_list = isinstance(document, list)
    hint = 'it looks like a file of predictions' if is_list else 'this is not an annotation file'
    raise UserError(
        f'annotation file {path} holds a JSON {type(document).__name__} at top level, not an '
        f"object with 'images', 'annotations' and 'categories': {hint}. Fix: set ann_file to "
        'the ground-truth file.'
    )


def _unreadable(path: Path, error: Exception) -> str:
    """Why a path cannot be read; where it breaks off, and what exists there."""
    if isinstance(error, IsADirectoryError):
        return (
            f'annotation file {path} is a folder. Fix: name the JSON file '
            'within it, in a config as ann_file.'
        )
    if not isinstance(error, FileNotFoundError):
        reason = getattr(error, 'strerror', None) or error
        return (
            f'annotation file {path!s:.300} cannot be read: {reason}. '
            'Fix: check the name, its permissions and the disk.'
        )
    parent = path.parent
    if parent.is_dir():
        names = sorted(x.name for x in parent.glob('*.json'))[:5]
        seen = f'its folder holds {", ".join(names) or "no JSON file"}'
    else:
        there = next(x for x in path.absolute().parents if x.exists())
        seen = f'the path exists only up to {there}'
    return (
        f'annotation file {path} does not exist; {seen}. Fix: correct the path, in a config '
        f'data_root or ann_file; relative paths start at the working directory {Path.cwd()}.'
    )


def _not_json(data: bytes, error: ValueError) -> str:
    """What is wrong with the bytes of a file that is not JSON, and the fix."""
    size = f'{len(data):,} bytes'
    for pattern, form, fix in _OTHER_FORMS:
        if re.match(pattern, data[:4000], re.IGNORECASE | re.DOTALL):
            return f'({size}) {form}. Fix: {fix}.'
    if isinstance(error, UnicodeDecodeError):
        return (
            f'is not UTF-8 text: byte {error.start:,} of {size} is 0x{data[error.start]:02x}. '
            'Fix: save it as UTF-8, or copy it again if it was damaged.'
        )
    if not isinstance(error, json.JSONDecodeError):
        return f'cannot be used: {error}. Fix: export the file again as COCO; no part needs that.'
    text = error.doc
    byte = len(text[: error.pos].encode())
    where = f'line {error.lineno}, column {error.colno}, byte {byte:,}'
    if not text.rstrip().endswith(('}', ']')):
        return (
            f'is cut off: it ends after {size} inside an unfinished value that starts at {where} '
            f'({error.msg}). Fix: the copy or download was interrupted; fetch it again and compare '
            'its size with the source.'
        )
    around = text[max(0, error.pos - 20) : error.pos + 20]
    return (
        f'({size}) is not valid JSON at {where}: {error.msg}, near {around!r}. Fix: correct that '
        'place, or fetch the file again if it was cut off.'
    )


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's garbage collector off.

    It would walk over the millions of objects of a large file again and again, a third of the time,
    and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_json(text: str) -> object:
    """Parse JSON; every way to fail is a ``ValueError``."""
    try:
        with collector_paused():
            return json.loads(text)
    except RecursionError as error:
        raise ValueError('it nests lists or objects more than about 1,000 deep') from error
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise ValueError(
            'an integer has more digits than Python reads, 4,300 by default'
        ) from error
