"""Images that may come from a stranger: looked at before they are decoded."""

import os
import warnings
from io import BytesIO
from typing import BinaryIO

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

#: Endings of files that are taken for images, in lower case.
IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.ppm', '.webp', '.tif', '.tiff')


def image_size(source: str | os.PathLike | BinaryIO) -> tuple[int, int]:
    """Read width and height in pixels of an image from its first bytes.

    A ``ValueError`` if it is no image, or has more than twice ``PIL.Image.MAX_IMAGE_PIXELS``, by
    default 179 million pixels: a file of a few kilobytes can.
    """
    try:
        with warnings.catch_warnings():
            # Of half the limit, and of details that no one reads.
            warnings.simplefilter('ignore')
            with Image.open(source) as image:
                return image.size
    except Image.DecompressionBombError as error:
        raise ValueError(
            f'{error}; cut it into tiles, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it'
        ) from error
    except UnidentifiedImageError as error:
        raise ValueError('it is not an image, or its first bytes are damaged') from error
    except Exception as error:  # Pillow's readers raise anything
        raise ValueError(str(error) or type(error).__name__) from error


def image_fault(path: str | os.PathLike) -> str | None:
    """Decode an image to its end, and say what is wrong with it.

    OpenCV fills what a truncated file lacks with grey and returns it, so that a training goes on
    with half an image. None: the image is whole.
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
    return 'it is damaged' if cv2.imread(os.fspath(path)) is None else None


def decode_image(data: bytes, flags: int = cv2.IMREAD_COLOR) -> np.ndarray:
    """Decode an image as ``cv2.imdecode``, to (H, W, 3) uint8 in BGR or (H, W)."""
    image_size(BytesIO(data))
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if image is None:
        raise ValueError('it is damaged')
    return image
