"""Reads CIFAR-10 and CIFAR-100. Imports mmpretrain."""

import zipfile
from pathlib import Path

import numpy as np
from mmpretrain.datasets import CIFAR10, CIFAR100

from mmrank.annotations.findings import shown
from mmrank.errors import UserError

#: mmpretrain's data set of each number of classes: names, files, reader.
HOSTS = {10: CIFAR10, 100: CIFAR100}
SPLITS = ('train', 'test')
#: Bytes; the training images of 32 x 32 pixels have 154 million.
_LARGEST_FILE = 10**9


def read_cifar(
    data_root: str | Path, split: str, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """(N, H, W, 3) uint8 images in RGB and (N,) int64 labels of a part, ``'train'`` or ``'test'``.

    Two forms are looked for, in this order: the published files (``cifar-10-batches-py/`` or
    ``cifar-100-python/``), read by mmpretrain; one array a part (``train.npz``, ``test.npz``), as
    ``tools/dataset_converters/cifar10.py`` writes them. Labels follow mmpretrain's class names.
    """
    root = Path(data_root).expanduser()
    host = HOSTS[num_classes]
    if (root / host.base_folder).is_dir():
        try:
            items = host(str(root), split=split, download=False, serialize_data=False).data_list
        except (AssertionError, RuntimeError) as error:
            raise UserError(
                f'{root / host.base_folder} is incomplete: a file is missing or its MD5 sum is '
                f'wrong. Fix: unpack {host.filename} again'
            ) from error
        labels = np.array([item['gt_label'] for item in items], dtype=np.int64)
        return np.stack([item['img'] for item in items]), labels
    if (root / f'{split}.npz').is_file():
        return _read_arrays(root / f'{split}.npz', host.METAINFO['classes'])
    raise UserError(
        f'{root} holds no {host.__name__}: neither {host.base_folder}/, the published files, nor '
        f'{split}.npz. Fix: check data_root, unpack {host.filename} there, or write arrays with '
        'tools/dataset_converters/cifar10.py'
    )


def _read_arrays(path: Path, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Read ``images`` (N, H, W, 3) uint8 in RGB and ``labels`` (N,) of an ``.npz`` file."""
    fix = 'Fix: write it again with tools/dataset_converters/cifar10.py'
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        # NumPy reserves what the header of an array says, and a bomb unpacks 1,000 times its size.
        if size > _LARGEST_FILE:
            raise ValueError(f'its arrays have {size:,} bytes, more than {_LARGEST_FILE:,}')
        with np.load(path, allow_pickle=False) as file:
            # What lacks the header of an array comes as bytes.
            images, labels, classes = (
                np.asarray(file[key]) for key in ('images', 'labels', 'classes')
            )
    except Exception as error:  # damaged bytes raise anything, a MemoryError among them
        raise UserError(f'{path} cannot be read: {error}. {fix}') from error
    classes = classes.reshape(-1)
    if tuple(classes.tolist()) != tuple(names):
        raise UserError(
            f'{path} has the classes {shown(classes.tolist())}, expected {shown(names)}. {fix}'
        )
    if (
        images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[-1] != 3
        or labels.shape != images.shape[:1]
        or labels.dtype.kind not in 'iu'
        or not len(labels)
        or not 0 <= labels.min() <= labels.max() < len(names)
    ):
        raise UserError(
            f'{path} holds images {images.shape} {images.dtype} and labels '
            f'{labels.shape} {labels.dtype}; expected (N, H, W, 3) uint8 and '
            f'(N,) integers from 0 to {len(names) - 1}. {fix}'
        )
    return images, labels.astype(np.int64)
