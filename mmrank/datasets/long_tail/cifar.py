"""Long-tailed CIFAR-10 and CIFAR-100, all classes or some against the rest. Imports mmpretrain."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mmpretrain.datasets import CIFAR10, CIFAR100, BaseDataset

from mmrank.annotations.findings import shown
from mmrank.datasets.long_tail.class_subset import (
    PARTS,
    check_class_sizes,
    choose_part,
    exponential_sizes,
    ranked_classes,
    shuffled_classes,
)
from mmrank.datasets.permutation import permutation
from mmrank.errors import UserError
from mmrank.settings import one_of

#: mmpretrain's data set of each number of classes: names, files, reader.
HOSTS = {10: CIFAR10, 100: CIFAR100}
SPLITS = ('train', 'test')
#: Bytes; the training images of 32 x 32 pixels have 154 million.
_LARGEST_FILE = 10**9


class CIFARLongTail(BaseDataset):
    """Base of the long-tailed versions of CIFAR.

    Of class c the training split has ``n_max * imbalance_ratio^(-c/(C-1))`` images. The test split
    is the published one, balanced. A balanced validation split can be set aside from the training
    images first; the published versions have none.

    Items have ``img``, (H, W, 3) uint8 in RGB, and ``gt_label``; their ``sample_idx`` counts from 0
    to ``len(dataset) - 1`` without a gap, as losses with a state per sample need it. A config needs
    no ``LoadImageFromFile``.

    Args:
        data_root: Folder with one of two forms, see :func:`read_cifar`.
        split: ``'train'``, ``'val'`` or ``'test'``.
        imbalance_ratio: Size of the largest class over the smallest's in the training split.
            1: all images.
        seed: Another seed chooses other images.
        val_per_class: Images of each class to set aside for validation, the same for every
            imbalance ratio.
        order_seed: None: the first class is the largest, as published. Else the seed decides how
            large each class is, to tell what comes from being rare from what comes from being a
            truck.
        **kwargs: As for ``mmpretrain.BaseDataset``.

    Raises:
        UserError: If the files are missing or damaged, or a setting makes no sense.
    """

    num_classes: int

    def __init__(
        self,
        data_root: str,
        split: str = 'train',
        imbalance_ratio: float = 100.0,
        seed: int = 0,
        val_per_class: int = 0,
        order_seed: int | None = None,
        **kwargs,
    ) -> None:
        one_of('split', split, PARTS)
        if val_per_class < 0 or (split == 'val' and not val_per_class):
            raise UserError(
                f'val_per_class={val_per_class!r} with split={split!r}. Fix: the images of each '
                'class to set aside, the same in all splits, at least 1 for a validation split'
            )
        self.split = split
        self.imbalance_ratio = imbalance_ratio
        self.seed = seed
        self.order_seed = order_seed
        self.val_per_class = val_per_class
        super().__init__(ann_file='', data_root=data_root, **kwargs)

    def load_data_list(self) -> list[dict]:
        part = 'test' if self.split == 'test' else 'train'
        images, labels = read_cifar(self.data_root, part, self.num_classes)
        chosen = [np.arange(len(labels))]
        if part == 'train':
            classes = shuffled_classes(labels, self.seed)
            aside = self.val_per_class
            check_class_sizes([aside + 1] * len(classes), classes, f'val_per_class={aside}')
            chosen = [members[:aside] for members in classes]
        if self.split == 'train':
            classes = [members[aside:] for members in classes]
            sizes = exponential_sizes(len(classes), len(classes[0]), self.imbalance_ratio)
            sizes = sizes[ranked_classes(len(classes), self.order_seed)]
            check_class_sizes(sizes, classes, f'imbalance_ratio={self.imbalance_ratio}')
            chosen = [members[:size] for members, size in zip(classes, sizes)]
        indices = np.sort(np.concatenate(chosen))
        return [{'img': images[i], 'gt_label': int(labels[i])} for i in indices]


class CIFAR10LT(CIFARLongTail):
    """CIFAR-10-LT: 12,406 images at ratio 100, 13,996 at 50, 20,431 at 10, CIFAR-10 at 1."""

    num_classes = 10
    METAINFO = CIFAR10.METAINFO


class CIFAR100LT(CIFARLongTail):
    """CIFAR-100-LT: 10,847 images at ratio 100, 12,608 at 50, 19,573 at 10, CIFAR-100 at 1."""

    num_classes = 100
    METAINFO = CIFAR100.METAINFO


class CIFARBinaryLongTail(BaseDataset):
    """Base of the data sets of some classes against the rest.

    All 60,000 images are pooled, the long-tailed set is taken from them, the ``positive`` classes
    become the positives, the rest the negatives, and the images of each original class are split
    8:1:1, so that all three parts are as imbalanced as the whole. So does section 7.3 of the stable
    AP paper (Chinese journal of computers, 2025), which leaves open which classes are the positive
    ones and how imbalanced the set is.

    Args:
        positive: Names of the positive classes, or one name.
        imbalance_ratio: Images of the first class to one of the last, as in CIFAR-LT; how rare the
            positives are depends on their place.
        seed: Another seed takes and splits otherwise.
        data_root, split, **kwargs: As for :class:`CIFARLongTail`, which has the items.

    Raises:
        UserError: If the files are missing or damaged, a class is unknown, or a part has no
            positive.
    """

    num_classes: int
    names: tuple[str, ...]

    def __init__(
        self,
        data_root: str,
        positive: str | Sequence[str],
        split: str = 'train',
        imbalance_ratio: float = 100.0,
        seed: int = 0,
        **kwargs,
    ) -> None:
        one_of('split', split, PARTS)
        positive = {positive} if isinstance(positive, str) else set(positive)
        if not positive < set(self.names) or not positive:
            what = f'positive={sorted(positive)} must name some, not all'
            raise UserError(what, f'of {", ".join(self.names)}')
        self.positive = [i for i, name in enumerate(self.names) if name in positive]
        self.split = split
        self.seed = seed
        self.imbalance_ratio = imbalance_ratio
        classes = ('rest', '+'.join(self.names[i] for i in self.positive))
        super().__init__(ann_file='', data_root=data_root, metainfo=dict(classes=classes), **kwargs)

    def load_data_list(self) -> list[dict]:
        halves = [read_cifar(self.data_root, half, self.num_classes) for half in SPLITS]
        images, labels = map(np.concatenate, zip(*halves))
        largest = int((labels == 0).sum())
        sizes = exponential_sizes(self.num_classes, largest, self.imbalance_ratio)
        chosen = choose_part(labels, sizes, self.split, self.seed)
        is_positive = np.isin(labels[chosen], self.positive)
        if is_positive.all() or not is_positive.any():
            raise UserError(
                f'the {self.split} part has {is_positive.sum()} positives of {len(chosen)} images, '
                'so that no positive can be ranked against a negative. Fix: a smaller '
                f'imbalance_ratio than {self.imbalance_ratio}, or another class than '
                f'{self.CLASSES[1]}'
            )
        # Training before test images would put the classes in turns twice;
        # a fixed shuffle lets `indices` take a fair subset.
        order = permutation(len(chosen), self.seed, len(sizes))
        return [{'img': images[chosen[i]], 'gt_label': int(is_positive[i])} for i in order]


class CIFAR10BinaryLT(CIFARBinaryLongTail):
    """Some classes of CIFAR-10 against the rest, long-tailed."""

    num_classes = 10
    names = tuple(CIFAR10.METAINFO['classes'])


class CIFAR100BinaryLT(CIFARBinaryLongTail):
    """Some classes of CIFAR-100 against the rest, long-tailed."""

    num_classes = 100
    names = tuple(CIFAR100.METAINFO['classes'])


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
