"""Small images, as bytes of files and in folders."""

import struct
import zlib

import cv2
import numpy as np


def encoded(pixels):
    """Bytes of an image file of uint8 pixels."""
    return cv2.imencode('.png', np.asarray(pixels, dtype=np.uint8))[1].tobytes()


def png_that_claims(width, height):
    """Bytes of a PNG of 2 x 2 pixels whose header promises a size."""
    data = bytearray(encoded(np.zeros((2, 2))))
    data[16:24] = struct.pack('>II', width, height)
    data[29:33] = struct.pack('>I', zlib.crc32(bytes(data[12:29])))
    return bytes(data)


def write_files(root, files):
    """Write a folder of names with their bytes."""
    for name, data in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root
