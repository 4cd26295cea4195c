"""Whether the image files that an annotation file names are there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError


@dataclass(frozen=True)
class ImageFinding:
    """One thing wrong with one image file: kind, text and fix."""

    kind: str
    text: str
    fix: str


_MISSING_FIX = (
    'copy the missing images, or correct data_prefix/data_root so that '
    'data_prefix["img"] + file_name is the path.'
)
_DAMAGED_FIX = 'copy or download the image again, or remove it from the file.'
_SIZE_FIX = (
    'write the real width and height, or put the image that was annotated in '
    'place: boxes are in the pixels of the annotated one.'
)


def find_image_problems(
    images: list[dict], image_dir: str | os.PathLike, verify: bool
) -> Iterator[ImageFinding]:
    """Look for the files of ``images``.

    Every folder is listed once, so that a set of 118,000 images takes one
    listing and not as many look-ups.

    Args:
        images: Entries of a COCO file's ``images``; those without
            ``file_name`` are passed over.
        image_dir: Folder that ``file_name`` is relative to.
        verify: Also read each header and compare width and height.

    Yields:
        What is wrong, in the order of ``images``.
    """
    image_dir = Path(image_dir)
    if not image_dir.is_dir():
        yield ImageFinding(
            'missing image folder',
            f'{image_dir} does not exist or is not a folder',
            _MISSING_FIX,
        )
        return
    listings: dict[str, dict[str, int]] = {}
    for entry in images:
        file_name = entry.get('file_name')
        if not isinstance(file_name, str):
            continue
        folder, name = os.path.split(file_name)
        if folder not in listings:
            listings[folder] = _sizes_in(image_dir / folder)
        size = listings[folder].get(name)
        path = image_dir / file_name
        if size is None:
            yield ImageFinding(
                'missing image file',
                f'image id {entry.get("id")!r}: {path}',
                _MISSING_FIX,
            )
        elif size == 0:
            yield ImageFinding(
                'empty image file',
                f'image id {entry.get("id")!r}: {path} has 0 bytes',
                _DAMAGED_FIX,
            )
        elif verify:
            yield from _verify(entry, path)


def _sizes_in(folder: Path) -> dict[str, int]:
    """File sizes in bytes by name; empty where there is no such folder."""
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        return {e.name: _size(e) for e in entries}


def _size(entry: os.DirEntry) -> int:
    """Size in bytes; a dangling link counts as an empty file."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _verify(entry: dict, path: Path) -> Iterator[ImageFinding]:
    """Read the header of one image."""
    try:
        with Image.open(path) as image:
            width, height = image.size
    except (UnidentifiedImageError, OSError, ValueError) as error:
        yield ImageFinding(
            'unreadable image file',
            f'image id {entry.get("id")!r}: {path}: {error}',
            _DAMAGED_FIX,
        )
        return
    stated = entry.get('width'), entry.get('height')
    if stated != (width, height):
        yield ImageFinding(
            'image size differs',
            f'image id {entry.get("id")!r}: {path} is {width} x {height}, '
            f'the annotation file has {stated[0]} x {stated[1]}',
            _SIZE_FIX,
        )
