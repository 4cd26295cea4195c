"""Reads CIFAR-10 and CIFAR-100 in any of their forms. Imports mmpretrain."""

import itertools
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mmpretrain.datasets import CIFAR10, CIFAR100

from mmrank.datasets.checks.data_report import shown
from mmrank.datasets.image_header import decode_image
from mmrank.datasets.retrieval.image_lists import scan_class_folders
from mmrank.errors import UserError

#: mmpretrain's data set of each number of classes: names, files, reader.
HOSTS = {10: CIFAR10, 100: CIFAR100}
SPLITS = ('train', 'test')
#: Bytes; the training images of 32 x 32 pixels have 154 million.
_LARGEST_FILE = 10**9


@dataclass
class _LabelledImages:
    """Images of one part of a data set."""

    images: np.ndarray | list[Path]  # (N, H, W, 3) uint8 in RGB, or N paths
    labels: np.ndarray  # (N,) int64
    source: str  # for messages

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The (n, H, W, 3) uint8 images in RGB of (n,) indices."""
        if isinstance(self.images, np.ndarray):
            return self.images[indices]
        images = [read_rgb(self.images[i]) for i in indices]
        for index, image in zip(indices, images):
            if image.shape != images[0].shape:
                raise UserError(
                    f'{self.images[index]} has the shape {image.shape}, others {images[0].shape}. '
                    f'Fix: make all images of {self.source} equally large'
                )
        return np.stack(images)


def read_cifar(data_root: str | Path, split: str, num_classes: int) -> _LabelledImages:
    """Read one part, ``'train'`` or ``'test'``, of CIFAR with 10 or 100 classes.

    Three forms are looked for, in this order: the published files (``cifar-10-batches-py/`` or
    ``cifar-100-python/``), read by mmpretrain; one array a part (``train.npz``, ``test.npz``), as
    ``tools/dataset_converters/cifar10.py`` writes them; folders of images
    (``train/<class>/*.jpg``), of which the first of each class comes first, then the second of
    each, and so on. Labels follow mmpretrain's class names.
    """
    root, host = Path(data_root).expanduser(), HOSTS[num_classes]
    names = host.METAINFO['classes']
    if (root / host.base_folder).is_dir():
        return _read_published(root, split, host)
    if (root / f'{split}.npz').is_file():
        return read_arrays(root / f'{split}.npz', names)
    if (root / split).is_dir():
        return _read_folders(root / split, names)
    raise UserError(
        f'{root} holds no {host.__name__}: neither {host.base_folder}/, the published files, nor '
        f'{split}.npz, nor {split}/<class>/. Fix: check data_root, or unpack {host.filename} there'
    )


def read_arrays(path: Path, names: tuple[str, ...]) -> _LabelledImages:
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
    return _LabelledImages(images, labels.astype(np.int64), str(path))


def read_rgb(path: Path) -> np.ndarray:
    """Decode a file to (H, W, 3) uint8 in RGB."""
    try:
        image = decode_image(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f'image {path} cannot be read: {error}. Fix: unpack the data set again'
        ) from error
    return np.ascontiguousarray(image[..., ::-1])


def _read_published(root: Path, split: str, host: type) -> _LabelledImages:
    try:
        items = host(
            data_root=str(root), split=split, download=False, serialize_data=False
        ).data_list
    except (AssertionError, RuntimeError) as error:
        raise UserError(
            f'{root / host.base_folder} is incomplete: a file is missing or '
            f'its MD5 sum is wrong. Fix: unpack {host.filename} again'
        ) from error
    labels = np.array([item['gt_label'] for item in items], dtype=np.int64)
    return _LabelledImages(
        np.stack([item['img'] for item in items]), labels, str(root / host.base_folder)
    )


def _read_folders(folder: Path, names: tuple[str, ...]) -> _LabelledImages:
    found = scan_class_folders(folder).images
    label_of = {name: label for label, name in enumerate(names)}
    there = {image.class_name for image in found}
    if there != set(names):
        raise UserError(
            f'{folder} must have a folder of images for each of the {len(names)} classes; missing: '
            f'{sorted(set(names) - there)}, unknown: {sorted(there - set(names))}. Fix: unpack the '
            'data set again, or correct data_root'
        )
    labels = np.array([label_of[i.class_name] for i in found])
    # As turns: any first n images are a balanced subset.
    next_turn = defaultdict(itertools.count)
    turns = [next(next_turn[label]) for label in labels]
    order = np.lexsort((labels, turns))
    return _LabelledImages([folder / found[i].path for i in order], labels[order], str(folder))
