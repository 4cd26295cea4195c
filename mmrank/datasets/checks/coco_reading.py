"""Reading of COCO files with errors that name what is wrong with the file."""

import gc
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrank.errors import UserError

_GZIP_MAGIC = b'\x1f\x8b'
_ZIP_MAGIC = b'PK\x03\x04'


def read_coco_json(ann_file: str | os.PathLike) -> dict:
    """Read a COCO JSON file."""
    path = Path(ann_file)
    if os.path.isdir(path):
        raise UserError(
            f'annotation file {path} is a folder. Fix: name the JSON file '
            'within it, in a config as ann_file.'
        )
    document = _parse(path, _read_text(path))
    if not isinstance(document, dict):
        hint = (
            'it looks like a file of predictions'
            if isinstance(document, list)
            else 'this is not an annotation file'
        )
        raise UserError(
            f'annotation file {path} holds a JSON {type(document).__name__} at top level, not an '
            f"object with 'images', 'annotations' and 'categories': {hint}. Fix: set ann_file to "
            'the ground-truth file.'
        )
    return document


def _missing_message(path: Path) -> str:
    """Describe where the path breaks off and what exists there."""
    parent = path.parent
    if os.path.isdir(parent):
        names = sorted(p.name for p in parent.glob('*.json'))[:5]
        seen = f'its folder holds {", ".join(names) or "no JSON file"}'
    else:
        while not os.path.exists(parent) and parent != parent.parent:
            parent = parent.parent
        seen = f'the path exists only up to {parent.resolve()}'
    return (
        f'annotation file {path} does not exist; {seen}. Fix: correct the path, in a config '
        f'data_root or ann_file; relative paths start at the working directory {Path.cwd()}.'
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


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(_missing_message(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, 'strerror', None) or error
        raise UserError(
            f'annotation file {path!s:.300} cannot be read: {reason}. '
            'Fix: check the name, its permissions and the disk.'
        ) from error
    size = f'{len(data):,} bytes'
    if not data or data.isspace():
        raise UserError(
            f'annotation file {path} is empty ({size}). Fix: copy or download it again.'
        )
    if form := _binary_form(path, data):
        raise _foreign(path, form)
    if data.startswith((_GZIP_MAGIC, _ZIP_MAGIC)):
        raise UserError(f'annotation file {path} is compressed ({size}). Fix: unpack it first.')
    if data.startswith(b'version https://git-lfs'):
        raise UserError(
            f'annotation file {path} is a Git LFS pointer ({size}). Fix: run '
            '`git lfs pull` to fetch the content.'
        )
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise UserError(
            f'annotation file {path} is not UTF-8 text: byte {error.start:,} of {size} is '
            f'0x{data[error.start]:02x}. Fix: save it as UTF-8, or copy it again if it was damaged.'
        ) from error


def _binary_form(path: Path, data: bytes) -> str | None:
    """What a file is, by how it begins, if it is not text."""
    if data.startswith((b'\x89PNG', b'\xff\xd8\xff', b'BM', b'RIFF')):
        return 'an image'
    if data.startswith(b'\x80') or path.suffix in ('.pth', '.pt'):
        return 'a checkpoint'
    return None


def _text_form(text: str) -> str | None:
    """What a text that is not JSON is, by how it begins; None if it may be meant as JSON."""
    line = text.lstrip().partition('\n')[0].lower()
    if line.startswith(('<!doctype html', '<html')):
        return 'an HTML page, perhaps of an error while downloading'
    if line.startswith('<'):
        return 'XML, as VOC and CVAT have it'
    if line.startswith(('{', '[', '"')):
        return None
    if re.fullmatch(r'\d+( [\d.]+){4,}\s*', line):
        return 'a text in the form of YOLO'
    if line.count(',') > 1:
        return 'CSV'
    return None if re.match(r'[-\d]|true|false|null|nan|infinity', line) else 'another text'


def _foreign(path: Path, form: str) -> UserError:
    return UserError(
        f'annotation file {path} is not JSON but {form}. Fix: name the JSON file in the form of '
        'COCO, or convert YOLO, VOC or CSV to it by tools/dataset_converters/to_coco.py'
    )


def _parse(path: Path, text: str) -> object:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        if form := _text_form(text[:4000]):
            raise _foreign(path, form) from error
        size = f'{len(text.encode()):,} bytes'
        byte = len(text[: error.pos].encode())
        where = f'line {error.lineno}, column {error.colno}, byte {byte:,}'
        if not text.rstrip().endswith(('}', ']')):
            raise UserError(
                f'annotation file {path} is cut off: it ends after {size} inside an unfinished '
                f'value that starts at {where} ({error.msg}). Fix: the copy or download was '
                'interrupted; fetch it again and compare its size with the source.'
            ) from error
        around = text[max(0, error.pos - 20) : error.pos + 20]
        raise UserError(
            f'annotation file {path} ({size}) is not valid JSON at {where}: {error.msg}, near '
            f'{around!r}. Fix: correct that place, or fetch the file again if it was cut off.'
        ) from error
    except ValueError as error:
        raise UserError(
            f'annotation file {path} cannot be used: {error}. Fix: export the '
            'file again as COCO; no part of it needs that.'
        ) from error
