"""Reading of COCO files with errors that name what is wrong with the file."""

import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrank.errors import UserError


def read_coco_json(ann_file: str | os.PathLike) -> dict:
    """Read a COCO JSON file; a ``UserError`` says why it cannot be read."""
    path = Path(ann_file)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        folder = next(str(x) for x in path.absolute().parents if os.path.isdir(x))
        names = ', '.join(sorted(x for x in os.listdir(folder) if x.endswith('.json'))[:5])
        reason = getattr(error, 'strerror', None) or error
        if isinstance(error, FileNotFoundError):
            reason = 'it does not exist'
        raise UserError(
            f'annotation file {path!s:.300} cannot be read: {reason}; the folder {folder} holds '
            f'{names or "no JSON file"}. Fix: correct the path, in a config data_root or ann_file; '
            f'relative paths start at {Path.cwd()}'
        ) from error
    try:
        document = parse_json(data.decode())
    except ValueError as error:
        if not data.lstrip()[:1].startswith((b'{', b'[')):
            raise UserError(
                f'annotation file {path} is not JSON: its {len(data):,} bytes begin with '
                f'{data[:30]!r}. Fix: name the JSON file of the annotations, unpack it or fetch it '
                'again (`git lfs pull`), or save it as UTF-8 without a byte order mark; YOLO, VOC '
                'and CSV become COCO by mmrank convert'
            ) from error
        what = f'annotation file {path}, {len(data):,} bytes, is cut off or damaged: {error}'
        fix = 'fetch it again, or export it again as COCO, one JSON object in UTF-8'
        raise UserError(what, fix) from error
    if not isinstance(document, dict):
        first = document[0] if isinstance(document, list) and document else document
        what = 'predictions, ' if isinstance(first, dict) and 'score' in first else ''
        raise UserError(
            f'annotation file {path} is {what}a JSON {type(document).__name__} which begins with '
            f"{first!r:.80}, not an object with 'images', 'annotations' and 'categories'. Fix: "
            "name the annotations in COCO's form, or export them so"
        )
    return document


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
