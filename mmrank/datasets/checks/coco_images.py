"""Whether the image files that an annotation file names are there."""

import os
import stat
from collections.abc import Collection
from unicodedata import normalize
from urllib.parse import unquote

from mmrank.datasets.checks.data_report import Findings, shown
from mmrank.datasets.image_header import dark_fault, image_fault, image_size, is_deep_png
from mmrank.files import path_fault

#: PNG files that are opened without `verify`.
_SAMPLED = 8


def find_image_problems(
    images: list[dict], image_dir: str | os.PathLike, verify: bool, found: Findings
) -> None:
    """Look for the files of ``images`` in ``image_dir``; with ``verify`` also decode them.

    Without ``verify`` eight PNG files are looked at, as loaders read 12 bits of 16 as black.

    Every folder is listed once, so that a set of 118,000 images takes one listing and not as many
    look-ups. Entries without a usable ``file_name`` are passed over.
    """
    image_dir = os.fspath(image_dir)
    if not os.path.isdir(image_dir):
        found.add('missing image folder', f'{image_dir} does not exist or is not a folder')
        return
    listings: dict[str, dict[str, int | str]] = {}
    pngs = []
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
            if name.endswith('.png'):
                pngs.append(file_name)
            continue
        path = os.path.join(image_dir, file_name)
        # A name can hold a line break, or move a terminal's cursor.
        where = f'image id {shown(entry.get("id"))}: {path if path.isprintable() else shown(path)}'
        if is_there:
            _verify(entry, path, where, found)
        elif size is None:
            if (near := spelling_on_disk(file_name, image_dir, listings[folder])) is None:
                found.add('missing image file', where)
            else:
                found.add('misspelt image file', f'{where}: there is {shown(near[0])}, {near[1]}')
        elif size == 0:
            found.add('empty image file', f'{where} has 0 bytes')
        else:
            found.add('unreadable image file', f'{where} {size}')
    step = max(len(pngs) // _SAMPLED, 1)
    sample = [os.path.join(image_dir, x) for x in pngs[::step][:_SAMPLED]]
    deep = [*filter(is_deep_png, sample)]
    if fault := dark_fault(deep):
        text = f'{len(deep)} of {len(sample)} PNG files, such as {deep[0]}: {fault}'
        found.add('dark images', text, is_error=False)


def spelling_on_disk(
    file_name: str, image_dir: str | os.PathLike, listing: Collection[str]
) -> tuple[str, str] | None:
    """The name of a file that is there under another spelling, and how it differs, or None.

    ``listing`` has the names in its folder.
    """
    for how, other in (
        ('a backslash for a slash', file_name.replace('\\', '/')),
        ('characters such as %20', unquote(file_name)),
    ):
        if other != file_name and os.path.isfile(os.path.join(image_dir, other)):
            return other, f'and the file name has {how}'
    folder, name = os.path.split(file_name)
    for form in ('NFC', 'NFD'):
        if (other := normalize(form, name)) in listing:
            return os.path.join(folder, other), f'in the Unicode form {form}'
    stem, dot, ending = name.rpartition('.')
    ways = (name.lower(), name.upper(), name.capitalize())
    ways += tuple(stem + dot + x for x in (ending.lower(), ending.upper()))
    other = next((x for x in ways if x in listing), None)
    return other and (os.path.join(folder, other), 'with other capital letters')


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
