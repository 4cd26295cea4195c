"""CIFAR-10-LT and CIFAR-100-LT. Imports mmpretrain."""

import numpy as np
from mmpretrain.datasets import CIFAR10, CIFAR100, BaseDataset

from mmrank.datasets.long_tail.cifar_images import read_cifar
from mmrank.datasets.long_tail.class_subset import (
    check_class_sizes,
    exponential_sizes,
    ranked_classes,
    shuffled_classes,
)

SPLITS = ('train', 'val', 'test')


class CIFARLongTail(BaseDataset):
    """Base of the long-tailed versions of CIFAR.

    Of class c the training split has ``n_max * imbalance_ratio^(-c/(C-1))`` images. The test split
    is the published one, balanced. A balanced validation split can be set aside from the training
    images first; the published versions have none.

    Items have ``img``, (H, W, 3) uint8 in RGB, and ``gt_label``; their ``sample_idx`` counts from 0
    to ``len(dataset) - 1`` without a gap, as losses with a state per sample need it. A config needs
    no ``LoadImageFromFile``.

    Args:
        data_root: Folder with one of three forms, see
            :func:`mmrank.datasets.long_tail.cifar_images.read_cifar`. The
            seed chooses other images in another form.
        split: ``'train'``, ``'val'`` or ``'test'``.
        imbalance_ratio: Size of the largest over that of the smallest class
            of the training split. 1: all images.
        seed: Another seed chooses other images.
        val_per_class: Images of each class to set aside for validation, the same for every
            imbalance ratio.
        order_seed: None: the first class is the largest, as published. Else the seed decides how
            large each class is, to tell what comes from being rare from what comes from being a
            truck.
        **kwargs: As for ``mmpretrain.BaseDataset``: ``pipeline``, ``test_mode``, ``indices`` and so
            on.

    Raises:
        UserError: If the files are missing or damaged.
        ValueError: If a setting makes no sense.
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
        if split not in SPLITS:
            raise ValueError(f'split must be one of {SPLITS}, got {split!r}')
        if val_per_class < 0 or (split == 'val' and not val_per_class):
            raise ValueError(
                f'val_per_class={val_per_class!r} with split={split!r}: set '
                'the images of each class to set aside, the same in all '
                'splits, at least 1 if there is a validation split'
            )
        self.split = split
        self.imbalance_ratio = imbalance_ratio
        self.seed = seed
        self.val_per_class = val_per_class
        self.order_seed = order_seed
        super().__init__(ann_file='', data_root=data_root, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Return ``img`` and ``gt_label`` of every image of the split."""
        part = 'test' if self.split == 'test' else 'train'
        found = read_cifar(self.data_root, part, self.num_classes)
        chosen = self._choose(found.labels)
        return [
            {'img': image, 'gt_label': int(label)}
            for image, label in zip(found.take(chosen), found.labels[chosen])
        ]

    def _choose(self, labels: np.ndarray) -> np.ndarray:
        if self.split == 'test':
            return np.arange(len(labels))
        classes = shuffled_classes(labels, self.seed)
        aside = self.val_per_class
        check_class_sizes([aside + 1] * len(classes), classes, f'val_per_class={aside}')
        if self.split == 'val':
            chosen = [members[:aside] for members in classes]
        else:
            classes = [members[aside:] for members in classes]
            sizes = exponential_sizes(len(classes), len(classes[0]), self.imbalance_ratio)[
                ranked_classes(len(classes), self.order_seed)
            ]
            check_class_sizes(sizes, classes, f'imbalance_ratio={self.imbalance_ratio}')
            chosen = [m[:size] for m, size in zip(classes, sizes)]
        return np.sort(np.concatenate(chosen))

    def extra_repr(self) -> list[str]:
        """Describe the selection, instead of mmpretrain's empty paths."""
        return [
            f'Folder: \t{self.data_root}',
            f'Split: \t{self.split}',
            f'Imbalance ratio: \t{self.imbalance_ratio}',
            f'Seed: \t{self.seed}',
            f'Order seed: \t{self.order_seed}',
            f'Validation images per class: \t{self.val_per_class}',
        ]


class CIFAR10LT(CIFARLongTail):
    """CIFAR-10-LT; with ``imbalance_ratio=1`` CIFAR-10.

    At ratio 100 it has 12,406 images, at 50 13,996, at 10 20,431.
    """

    num_classes = 10
    METAINFO = CIFAR10.METAINFO


class CIFAR100LT(CIFARLongTail):
    """CIFAR-100-LT; with ``imbalance_ratio=1`` CIFAR-100.

    At ratio 100 it has 10,847 images, at 50 12,608, at 10 19,573.
    """

    num_classes = 100
    METAINFO = CIFAR100.METAINFO
