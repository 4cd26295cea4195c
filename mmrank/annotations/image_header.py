"""Images that may come from a stranger: looked at before they are decoded."""

import os
import warnings
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

from mmrank.errors import UserError

#: Endings of files that are taken for images, in lower case.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.bmp', '.dib', '.pgm', '.ppm')
IMAGE_SUFFIXES += ('.webp', '.tif', '.tiff', '.jp2')

#: Tag of EXIF.
_ORIENTATION = 0x0112
_PNG = b'\x89PNG\r\n\x1a\n'
#: Cameras and scanners of 10, 12 and 14 bits stay below it; their readers divide by less than 256.
_LEAST_OF_16_BITS = 1 << 14


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
