"""Whether the image files that an annotation file names are there."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from mmrank.datasets.checks.coco_findings import shown
from mmrank.datasets.image_header import image_fault, image_size
from mmrank.files import path_fault


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

    Every folder is listed once, so that a set of 118,000 images takes one listing and not as many
    look-ups.

    Args:
        images: Entries of a COCO file's ``images``; those without a usable ``file_name`` are passed
            over.
        image_dir: Folder that ``file_name`` is relative to.
        verify: Also decode each image and compare width and height.

    Yields:
        What is wrong, in the order of ``images``.
    """
    image_dir = os.fspath(image_dir)
    if not os.path.isdir(image_dir):
        yield ImageFinding(
            'missing image folder', f'{image_dir} does not exist or is not a folder', _MISSING_FIX
        )
        return
    listings: dict[str, dict[str, int | str]] = {}
    for entry in images:
        file_name = entry.get('file_name')
        if path_fault(file_name):
            continue
        folder, name = os.path.split(file_name)
        if folder not in listings:
            listings[folder] = _sizes_in(os.path.join(image_dir, folder))
        size = listings[folder].get(name)
        if not size or not isinstance(size, int):
            yield _no_content(entry, os.path.join(image_dir, file_name), size)
        elif verify:
            yield from _verify(entry, os.path.join(image_dir, file_name))


def _sizes_in(folder: str) -> dict[str, int | str]:
    """By name the bytes of a file, or why it is none; empty: no folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: _size(entry) for entry in entries}
    except OSError:
        return {}


def _size(entry: os.DirEntry) -> int | str:
    try:
        status = entry.stat()
    except OSError as error:  # a link to nothing, or to itself
        return f'cannot be opened: {error.strerror}'
    if not stat.S_ISREG(status.st_mode):
        return 'is not a file'  # opening a named pipe would wait for ever
    return status.st_size


def _no_content(entry: dict, path: str, size: int | str | None) -> ImageFinding:
    where = _where(entry, path)
    if size is None:
        return ImageFinding('missing image file', where, _MISSING_FIX)
    if size == 0:
        return ImageFinding('empty image file', f'{where} has 0 bytes', _DAMAGED_FIX)
    return ImageFinding('unreadable image file', f'{where} {size}', _DAMAGED_FIX)


def _where(entry: dict, path: str) -> str:
    # A name can hold a line break, or move a terminal's cursor.
    path = path if path.isprintable() else shown(path)
    return f'image id {shown(entry.get("id"))}: {path}'


def _verify(entry: dict, path: str) -> Iterator[ImageFinding]:
    """Decode one image."""
    fault = image_fault(path)
    if fault is not None:
        yield ImageFinding('unreadable image file', f'{_where(entry, path)}: {fault}', _DAMAGED_FIX)
        return
    width, height = image_size(path)
    stated = entry.get('width'), entry.get('height')
    if stated != (width, height):
        yield ImageFinding(
            'image size differs',
            f'{_where(entry, path)} is {width} x {height}, the annotation '
            f'file has {shown(stated[0])} x {shown(stated[1])}',
            _SIZE_FIX,
        )
