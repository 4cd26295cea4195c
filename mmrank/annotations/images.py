"""Whether the image files that an annotation file names are there, and of the stated size."""

import os
import stat
from collections.abc import Collection
from unicodedata import normalize
from urllib.parse import unquote

from mmrank.annotations.findings import Findings, shown
from mmrank.annotations.image_header import dark_fault, image_fault, image_size, is_deep_png
from mmrank.errors import UserError

#: Files whose size is read where not all are decoded.
_SAMPLED = 8


def find_image_problems(
    images: list[dict], image_dir: str | os.PathLike, verify: bool, found: Findings
) -> None:
    """Look for the files of ``images`` in ``image_dir``; with ``verify`` also decode them.

    Without it the sizes of eight are read. Each folder is listed once: 118,000 look-ups are slow.
    """
    image_dir = os.fspath(image_dir)
    if not os.path.isdir(image_dir):
        found.add('missing image folder', f'{image_dir} does not exist or is not a folder')
        return
    listings: dict[str, dict[str, int | str]] = {}
    there = []
    for entry in images:
        file_name = entry.get('file_name')
        if not file_name:
            continue
        folder, name = os.path.split(file_name)
        if folder not in listings:
            listings[folder] = _sizes_in(os.path.join(image_dir, folder))
        size = listings[folder].get(name)
        path = os.path.join(image_dir, file_name)
        # A name can hold a line break, or move a terminal's cursor.
        where = f'image id {shown(entry.get("id"))}: {path if path.isprintable() else shown(path)}'
        if isinstance(size, int) and size > 0:
            there.append((entry, path, where))
        elif size is None:
            near = spelling_on_disk(file_name, image_dir, listings[folder])
            found.add('missing image file', where + (f': there is {shown(near)}' if near else ''))
        else:
            found.add('unreadable image file', f'{where} {size or "has 0 bytes"}')
    sample = there if verify else there[:: max(len(there) // _SAMPLED, 1)][:_SAMPLED]
    for entry, path, where in sample:
        if fault := image_fault(path) if verify else None:
            found.add('unreadable image file', f'{where}: {fault}')
            continue
        try:
            size = image_size(path)
        except ValueError:  # training names it
            continue
        stated = entry['width'], entry['height']
        if stated != size:
            turned = ', its sides swapped: loaders turn an image by its EXIF'
            found.add(
                'image size differs',
                f'{where} is {size[0]} x {size[1]}, the annotation file has {shown(stated[0])} x '
                f'{shown(stated[1])}' + (turned if stated == size[::-1] else ''),
            )
    deep = [path for _, path, _ in sample if not verify and is_deep_png(path)]
    if fault := dark_fault(deep):
        text = f'{len(deep)} of {len(sample)} images, such as {deep[0]}: {fault}'
        found.add('dark images', text, is_error=False)


def spelling_on_disk(
    file_name: str, image_dir: str | os.PathLike, listing: Collection[str]
) -> str | None:
    """The name of a file that is there under another spelling; ``listing`` is its folder's."""
    for other in (file_name.replace('\\', '/'), unquote(file_name)):
        if other != file_name and os.path.isfile(os.path.join(image_dir, other)):
            return other
    folder, name = os.path.split(file_name)
    plain = normalize('NFC', name).casefold()
    near = [x for x in listing if normalize('NFC', x).casefold() == plain]
    return os.path.join(folder, near[0]) if len(near) == 1 else None


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


def refuse_other_size(results: dict, source: str = 'the annotation file') -> dict:
    """Refuse, as a transform, an image of another size than its annotations state."""
    stated = (results.get('height'), results.get('width'))
    found = tuple(results.get('ori_shape', stated)[:2])
    if None not in stated and stated != found:
        raise UserError(
            f'{results.get("img_path")} is {found[1]} x {found[0]}, {source} has {stated[1]} x '
            f'{stated[0]}: image size differs, so its boxes are of another picture',
            'the labelled images; mmrank check coco --config CONFIG --verify-images lists others',
        )
    return results
