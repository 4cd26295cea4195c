"""Small images, and archives of them as any tool writes them."""

import struct
import zipfile
import zlib

import cv2
import numpy as np


def encoded(pixels):
    """Bytes of an image file of uint8 pixels."""
    return cv2.imencode('.png', np.asarray(pixels, dtype=np.uint8))[1].tobytes()


def write_zip(path, members, mode=None):
    """Write names with their content to a zip file; ``mode`` is that of a file system."""
    with zipfile.ZipFile(path, 'w') as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if mode is not None:
                info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


def png_that_claims(width, height):
    """Bytes of a PNG of 2 x 2 pixels whose header promises a size."""
    data = bytearray(encoded(np.zeros((2, 2))))
    data[16:24] = struct.pack('>II', width, height)
    data[29:33] = struct.pack('>I', zlib.crc32(bytes(data[12:29])))
    return bytes(data)
