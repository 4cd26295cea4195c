"""Image files: whether they are there, whole and of the stated size, looked at before decoding."""

import os
import stat
import warnings
from collections.abc import Collection, Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from unicodedata import normalize
from urllib.parse import unquote

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

from mmrank.annotations.findings import Findings, shown
from mmrank.errors import UserError

#: Endings of files that are taken for images, in lower case.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.bmp', '.dib', '.pgm', '.ppm')
IMAGE_SUFFIXES += ('.webp', '.tif', '.tiff', '.jp2')

#: Tag of EXIF.
_ORIENTATION = 0x0112
_PNG = b'\x89PNG\r\n\x1a\n'
#: Cameras and scanners of 10, 12 and 14 bits stay below it; their readers divide by less than 256.
_LEAST_OF_16_BITS = 1 << 14
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
        fault = image_fault(path) if verify else None
        if fault:
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


def image_size(source: str | os.PathLike | BinaryIO) -> tuple[int, int]:
    """Read width and height in pixels of an image from its first bytes, turned as loaders turn it.

    OpenCV, which mmcv reads with, turns a JPEG and a PNG by the EXIF tag of its orientation.
    A ``ValueError`` if it is not an image, or has more than twice ``PIL.Image.MAX_IMAGE_PIXELS``,
    by default 179 million pixels: a file of a few kilobytes can.
    """
    try:
        with warnings.catch_warnings():
            # Of half the limit, and of details that no one reads.
            warnings.simplefilter('ignore')
            with Image.open(source) as image:
                return image.size[::-1] if _is_turned(image) else image.size
    except Image.DecompressionBombError as error:
        fix = 'Cut it into tiles, or in Python raise PIL.Image.MAX_IMAGE_PIXELS'
        raise ValueError(f'{error} {fix}') from error
    except UnidentifiedImageError as error:
        raise ValueError('it is not an image, or its first bytes are damaged') from error
    except Exception as error:  # Pillow's readers raise anything
        raise ValueError(str(error) or type(error).__name__) from error


def _is_turned(image: Image.Image) -> bool:
    """Whether its rows become columns. OpenCV leaves a WebP alone; Pillow has turned a TIFF."""
    if image.format not in ('JPEG', 'MPO', 'PNG') or 'exif' not in image.info:
        return False
    exif = Image.Exif()
    exif.load(image.info['exif'])
    return exif.get(_ORIENTATION) in (5, 6, 7, 8)


def image_fault(path: str | os.PathLike) -> str | None:
    """Decode an image to its end, and say what is wrong with it.

    OpenCV fills what a truncated file lacks with grey and returns it, so that a training goes on
    with half an image, and it reads 12 bits in a file of 16 as nearly black. None: the image is
    whole.
    """
    try:
        image_size(path)
    except ValueError as error:
        return str(error)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            with Image.open(path) as image:
                image.load()
    except Exception as error:  # Pillow's readers raise anything
        return f'it is cut off or damaged: {error}'
    if cv2.imread(os.fspath(path)) is None:
        return 'it is damaged'
    return dark_fault([path])


def dark_fault(paths: Iterable[str | os.PathLike]) -> str | None:
    """Say that the 16 bits of images are not used, all of them together; None if they are."""
    largest = max(filter(None, map(_largest_of_16_bits, paths)), default=_LEAST_OF_16_BITS)
    if largest >= _LEAST_OF_16_BITS:
        return None
    return (
        f'its 16-bit values end at {largest}, and loaders keep the upper 8 bits: it is read as '
        f'0 to {largest >> 8}; write it with 8 bits'
    )


def is_deep_png(path: str | os.PathLike) -> bool:
    """Whether a file is a PNG of 16 bits a value, by the 25 bytes that tell."""
    try:
        with open(path, 'rb') as file:
            head = file.read(25)
    except OSError:
        return False
    return head.startswith(_PNG) and head[24:] == b'\x10'


def _largest_of_16_bits(path: str | os.PathLike) -> int | None:
    pixels = cv2.imread(os.fspath(path), cv2.IMREAD_UNCHANGED)
    return int(pixels.max()) if pixels is not None and pixels.dtype == np.uint16 else None


def read_image(path: str | os.PathLike, flags: int = cv2.IMREAD_COLOR) -> np.ndarray:
    """Decode an image to (H, W, 3) uint8 in BGR, or (H, W); a ``UserError`` names the file."""
    try:
        data = Path(path).read_bytes()
        image_size(BytesIO(data))
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        if image is None:
            raise ValueError('it is damaged')
        return image
    except (OSError, ValueError) as error:
        fix = 'fetch or unpack it again'
        raise UserError(f'image {path} cannot be read: {error}', fix) from error
