"""Small images, and tar files of them as any tool writes shards."""

import io
import tarfile

import cv2
import numpy as np


def encoded(pixels, ending='.png'):
    """Bytes of an image file of uint8 pixels."""
    return cv2.imencode(ending, np.asarray(pixels, dtype=np.uint8))[1].tobytes()


def write_tar(path, members):
    """Write names with their bytes by the standard library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w') as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
