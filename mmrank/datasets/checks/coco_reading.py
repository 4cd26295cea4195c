"""Reading of COCO files with errors that name what is wrong with the file."""

import gc
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrank.errors import UserError

#: What a file is that is not JSON, by how it begins, and the fix; the first that fits counts.
_OTHER_FORMS = (
    (rb'\s*\Z', 'is empty', 'copy or download it again'),
    (rb'\x1f\x8b|PK\x03\x04', 'is compressed', 'unpack it first'),
    (rb'\xef\xbb\xbf|\xff\xfe|\xfe\xff', 'has a byte order mark', 'save it as UTF-8 without one'),
    (rb'version https://git-lfs', 'is a Git LFS pointer', '`git lfs pull`'),
    (
        rb'\s*[^\s{\[]',
        'is not JSON',
        'name the JSON file of the annotations, or make it of YOLO, VOC or CSV by mmrank convert',
    ),
)


def read_coco_json(ann_file: str | os.PathLike) -> dict:
    """Read a COCO JSON file; a ``UserError`` says why it cannot be read."""
    path = Path(ann_file)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        there = next(str(x) for x in path.absolute().parents if os.path.isdir(x))
        names = ', '.join(sorted(x for x in os.listdir(there) if x.endswith('.json'))[:5])
        reason = f'cannot be read: {getattr(error, "strerror", None) or error}'
        if isinstance(error, FileNotFoundError):
            reason = 'does not exist'
        elif isinstance(error, IsADirectoryError):
            reason = 'is a folder'
        raise UserError(
            f'annotation file {path!s:.300} {reason}; the folder {there} holds '
            f'{names or "no JSON file"}. Fix: correct the path, in a config data_root or ann_file; '
            f'relative paths start at {Path.cwd()}'
        ) from error
    try:
        document = parse_json(data.decode())
    except ValueError as error:
        raise UserError(f'annotation file {path} {_not_json(data, error)}') from error
    if not isinstance(document, dict):
        first = document[0] if isinstance(document, list) and document else None
        keys = ', '.join(map(repr, first))[:80] if isinstance(first, dict) else 'nothing'
        is_found = isinstance(first, dict) and 'score' in first
        raise UserError(
            f'annotation file {path} is a JSON {type(document).__name__} '
            f'({"predictions" if is_found else f"its first entry has {keys}"}), not an object with '
            "'images', 'annotations' and 'categories'. Fix: name the annotations in COCO's form"
        )
    return document


def _not_json(data: bytes, error: ValueError) -> str:
    """What is wrong with the bytes of a file that is not JSON, and the fix."""
    for pattern, form, fix in _OTHER_FORMS:
        if re.match(pattern, data):
            return f'{form}; its {len(data):,} bytes begin with {data[:30]!r}. Fix: {fix}'
    if isinstance(error, UnicodeDecodeError):
        return f'is not UTF-8 text at byte {error.start:,}. Fix: save it as UTF-8'
    if not isinstance(error, json.JSONDecodeError):
        return f'cannot be used: {error}. Fix: export the file again as COCO; no part needs that'
    where = f'line {error.lineno}, column {error.colno} of {len(data):,} bytes ({error.msg})'
    if error.msg == 'Extra data':
        return f'has several JSON values, such as one a line, at {where}. Fix: export it as COCO'
    if not error.doc.rstrip().endswith(('}', ']')):
        return f'is cut off in a value that starts at {where}. Fix: fetch it again'
    around = error.doc[max(0, error.pos - 20) : error.pos + 20]
    return (
        f'is no valid JSON at {where}, near {around!r}. Fix: correct it, or fetch the file '
        'again if it was cut off'
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
