"""Reading of COCO files with errors that name what is wrong with the file."""

import json
import os
from pathlib import Path

from mmrank.errors import UserError

_GZIP_MAGIC = b'\x1f\x8b'
_ZIP_MAGIC = b'PK\x03\x04'


def read_coco_json(ann_file: str | os.PathLike) -> dict:
    """Read an annotation file.

    Args:
        ann_file: Path of a COCO JSON file.

    Returns:
        The document, a dict.

    Raises:
        UserError: If the file is missing, empty, compressed, cut off,
            not JSON or not an object at top level.
    """
    path = Path(ann_file)
    if path.is_dir():
        raise UserError(
            f'annotation file {path} is a folder. Fix: point ann_file at the '
            'JSON file within it.'
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(_missing_message(path)) from None
    except OSError as error:
        raise UserError(
            f'annotation file {path} cannot be read: {error.strerror}. Fix: '
            'check its permissions and the disk.'
        ) from error
    document = _parse(path, data)
    if not isinstance(document, dict):
        hint = (
            'it looks like a file of predictions'
            if isinstance(document, list)
            else 'this is not an annotation file'
        )
        raise UserError(
            f'annotation file {path} holds a JSON {type(document).__name__} '
            "at top level, not an object with 'images', 'annotations' and "
            f"'categories': {hint}. Fix: set ann_file to the ground-truth "
            'file.'
        )
    return document


def _missing_message(path: Path) -> str:
    """Describe where the path breaks off and what exists there."""
    parent = path.parent
    if parent.is_dir():
        names = sorted(p.name for p in parent.glob('*.json'))[:5]
        seen = f'its folder holds {", ".join(names) or "no JSON file"}'
    else:
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        seen = f'the path exists only up to {parent.resolve()}'
    return (
        f'annotation file {path} does not exist; {seen}. Fix: correct '
        'data_root or ann_file in the config; relative paths start at the '
        f'working directory {Path.cwd()}.'
    )


def _parse(path: Path, data: bytes) -> object:
    size = f'{len(data):,} bytes'
    if not data.strip():
        raise UserError(
            f'annotation file {path} is empty ({size}). Fix: copy or '
            'download it again.'
        )
    if data.startswith((_GZIP_MAGIC, _ZIP_MAGIC)):
        raise UserError(
            f'annotation file {path} is compressed ({size}). Fix: unpack it '
            'first.'
        )
    if data.startswith(b'version https://git-lfs'):
        raise UserError(
            f'annotation file {path} is a Git LFS pointer ({size}). Fix: run '
            '`git lfs pull` to fetch the content.'
        )
    try:
        text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise UserError(
            f'annotation file {path} is not UTF-8 text: byte '
            f'{error.start:,} of {size} is 0x{data[error.start]:02x}. Fix: '
            'save it as UTF-8, or copy it again if it was damaged.'
        ) from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        byte = len(text[: error.pos].encode())
        where = f'line {error.lineno}, column {error.colno}, byte {byte:,}'
        if not text.rstrip().endswith(('}', ']')):
            raise UserError(
                f'annotation file {path} is cut off: it ends after {size} '
                f'inside an unfinished value that starts at {where} '
                f'({error.msg}). Fix: the copy or download was interrupted; '
                'fetch it again and compare its size with the source.'
            ) from error
        raise UserError(
            f'annotation file {path} ({size}) is not valid JSON at {where}: '
            f'{error.msg}, near {_around(text, error.pos)!r}. Fix: correct '
            'that place, or fetch the file again if it was cut off.'
        ) from error


def _around(text: str, position: int) -> str:
    return text[max(0, position - 20) : position + 20]
