"""Whether the image files that an annotation file names are there."""

import os
import stat
from unicodedata import normalize
from urllib.parse import unquote

from mmrank.datasets.checks.data_report import Findings, shown
from mmrank.datasets.image_header import image_fault, image_size
from mmrank.files import path_fault


def find_image_problems(
    images: list[dict], image_dir: str | os.PathLike, verify: bool, found: Findings
) -> None:
    """Look for the files of ``images`` in ``image_dir``; with ``verify`` also decode them.

    Every folder is listed once, so that a set of 118,000 images takes one listing and not as many
    look-ups. Entries without a usable ``file_name`` are passed over.
    """
    image_dir = os.fspath(image_dir)
    if not os.path.isdir(image_dir):
        found.add('missing image folder', f'{image_dir} does not exist or is not a folder')
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
        is_there = isinstance(size, int) and size > 0
        if is_there and not verify:
            continue
        path = os.path.join(image_dir, file_name)
        # A name can hold a line break, or move a terminal's cursor.
        where = f'image id {shown(entry.get("id"))}: {path if path.isprintable() else shown(path)}'
        if is_there:
            _verify(entry, path, where, found)
        elif size is None:
            if (near := _misspelt(file_name, image_dir, listings[folder])) is None:
                found.add('missing image file', where)
            else:
                found.add('misspelt image file', f'{where}: {near}')
        elif size == 0:
            found.add('empty image file', f'{where} has 0 bytes')
        else:
            found.add('unreadable image file', f'{where} {size}')


def _misspelt(file_name: str, image_dir: str, listing: dict) -> str | None:
    """Which file is there under another spelling, and how it differs; None if none is."""
    for how, other in (
        ('a backslash for a slash', file_name.replace('\\', '/')),
        ('characters such as %20', unquote(file_name)),
    ):
        if other != file_name and os.path.isfile(os.path.join(image_dir, other)):
            return f'there is {shown(other)}, and the file name has {how}'
    name = os.path.basename(file_name)
    for form in ('NFC', 'NFD'):
        if normalize(form, name) in listing:
            return f'there is {shown(name)} in the Unicode form {form}'
    stem, dot, ending = name.rpartition('.')
    ways = (name.lower(), name.upper(), name.capitalize())
    ways += tuple(stem + dot + x for x in (ending.lower(), ending.upper()))
    other = next((x for x in ways if x in listing), None)
    return other and f'there is {shown(other)}, with other capital letters'


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


def _verify(entry: dict, path: str, where: str, found: Findings) -> None:
    fault = image_fault(path)
    if fault is not None:
        found.add('unreadable image file', f'{where}: {fault}')
        return
    width, height = image_size(path)
    stated = entry.get('width'), entry.get('height')
    if stated != (width, height):
        turned = (
            ', its sides swapped: loaders turn an image by its EXIF'
            if stated == (height, width)
            else ''
        )
        found.add(
            'image size differs',
            f'{where} is {width} x {height}, the annotation '
            f'file has {shown(stated[0])} x {shown(stated[1])}' + turned,
        )
