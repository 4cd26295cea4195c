"""The retrieval data sets and their base. Imports mmpretrain."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mmengine.fileio import join_path
from mmpretrain.datasets import BaseDataset

from mmrank.annotations.findings import shown
from mmrank.annotations.text_tables import read_rows
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.retrieval.image_lists import (
    INATURALIST_LIST,
    PATH_LIST,
    SOP_LIST,
    VEHICLE_ID_LIST,
    ImageList,
    scan_class_folders,
)
from mmrank.errors import UserError
from mmrank.settings import check_at_least, check_within, one_of

#: Vehicles of the test lists of VehicleID.
_TEST_LISTS = {'small': 800, 'medium': 1600, 'large': 2400}


class RetrievalDataset(OneSizeBatches, BaseDataset):
    """Images with one class each, split by class.

    A subclass defines by :meth:`read_list` which images its training and its test part consist of.
    The validation classes are taken from the training part. Labels are 0 to C-1 in each split, by
    the names of its classes in natural order (2 before 10), which ``metainfo['classes']`` holds.

    Args:
        data_root: Folder of the data set.
        split: ``'train'``, ``'val'``, ``'trainval'`` (both) or ``'test'``.
        val_fraction: Share of the training classes, in each super-class, that make the validation
            split; 0 for none.
        split_seed: Another seed sets other classes aside.
        num_val_classes: Number of validation classes in all, instead of ``val_fraction``; each
            super-class gives its share.
        hierarchy: File with lines ``coarse ... class`` parted by tabs, one for each class and all
            with as many levels, or ``'super_class'``. ``gt_label`` of a sample then has a number
            for each level, from coarse to fine, as ``mmrank.HAPLoss`` and
            ``mmrank.RetrievalMetric`` take it; samplers see the class. None: the class alone.
        **kwargs: As for ``mmpretrain.BaseDataset``: ``data_prefix``, the folder of the images
            within ``data_root``, ``classes``, the only ones to keep, in this order (names, or a
            file with one a line), ``pipeline``, ...

    Raises:
        UserError: If a list cannot be read, or a split is empty.
    """

    def __init__(
        self,
        data_root: str,
        split: str = 'train',
        val_fraction: float = 0.1,
        split_seed: int = 0,
        num_val_classes: int | None = None,
        hierarchy: str | None = None,
        **kwargs,
    ) -> None:
        self.hierarchy = hierarchy
        one_of('split', split, ('train', 'val', 'trainval', 'test'))
        if split == 'val' and not (val_fraction or num_val_classes):
            raise UserError("split='val' needs a val_fraction above 0. Fix: val_fraction=0.1")
        self.split = split
        self.split_seed = split_seed
        self.val_fraction = val_fraction
        self.num_val_classes = num_val_classes
        # Most of these data sets have lists of fixed names.
        kwargs.setdefault('ann_file', '')
        super().__init__(data_root=data_root, **kwargs)

    def read_list(self, test: bool) -> ImageList:
        """Read the test part, or the training part with the validation classes."""
        raise NotImplementedError

    def choose_classes(self, groups: dict[str, str]) -> list[str]:
        """Return the classes of the split, given the super-class of every class of the part."""
        if self.split in ('test', 'trainval'):
            return list(groups)
        stay, aside = split_classes(
            groups, self.val_fraction, self.split_seed, self.num_val_classes
        )
        return stay if self.split == 'train' else aside

    def load_data_list(self) -> list[dict]:
        found = self.read_list(test=self.split == 'test')
        found.raise_if_bad()
        groups = {i.class_name: i.super_class for i in found.images}
        groups = {n: groups[n] for n in sorted(groups, key=_natural_order)}
        wanted = self._metainfo.get('classes')
        if wanted is None:
            wanted = self.choose_classes(groups)
        else:
            unknown = [name for name in wanted if name not in groups]
            if unknown or len(set(wanted)) < len(wanted):
                raise UserError(
                    f'classes of {type(self).__name__}: {shown(unknown[:5])} are not in '
                    f'{found.source}, which has {shown(list(groups)[:5])}, ..., or a name is '
                    'listed twice. Fix: correct the list of classes'
                )
        labels = {name: index for index, name in enumerate(wanted)}
        coarser = self._coarser(groups, wanted)
        self._metainfo['classes'] = tuple(labels)
        items = []
        for image in found.images:
            if image.class_name not in labels:
                continue
            path = join_path(self.img_prefix, image.path)
            item = {'img_path': path, 'gt_label': labels[image.class_name]}
            if coarser:
                item['label_levels'] = [*coarser[image.class_name], item['gt_label']]
            items.append(item)
        return items

    def prepare_data(self, idx: int):
        """Run the pipeline on an item, its ``gt_label`` with all levels."""
        item = self.get_data_info(idx)
        item['gt_label'] = item.pop('label_levels', item.get('gt_label'))
        return self.pipeline(item)

    def _coarser(self, groups: Mapping[str, str], wanted: Sequence[str]) -> dict[str, list[int]]:
        """Numbers of the coarser classes of each class, unique in their level."""
        if self.hierarchy is None:
            return {}
        if self.hierarchy == 'super_class':
            rows = [[group, name] for name, group in groups.items()]
        else:
            rows = [row for _, row in read_rows(self.hierarchy, '\t')]
        paths = {row[-1]: row[:-1] for row in rows}
        missing = [name for name in wanted if not any(paths.get(name, ()))]
        is_even = len({len(x) for x in paths.values()}) == 1
        if missing or not is_even or len(paths) < len(rows):
            raise UserError(
                f'hierarchy={self.hierarchy!r} lacks {missing[:5]}, has lines of several lengths, '
                'or a class twice. Fix: a line for each class, "coarse, ..., class" parted by tabs'
            )
        numbers: dict[tuple[str, ...], int] = {}
        return {
            name: [
                numbers.setdefault(tuple(paths[name][: k + 1]), len(numbers))
                for k in range(len(paths[name]))
            ]
            for name in wanted
        }


def _natural_order(name: str) -> list:
    """Sort key by which 'a2' comes before 'a10'."""
    # Digits are compared by their count first: int() refuses long ones.
    parts = re.split(r'(\d+)', name)
    return [
        (0, len(part.lstrip('0')), part.lstrip('0')) if part.isdecimal() else (1, 0, part)
        for part in parts
        if part
    ]


def split_classes(
    groups: Mapping[str, str], fraction: float, seed: int, count: int | None = None
) -> tuple[list[str], list[str]]:
    """Set a fraction of the classes aside, in every group alike; ``groups`` has each class's group.

    Returns the classes that stay and those set aside, both in the order given. ``fraction``, in [0,
    1), is rounded to the nearest number in each group, and at least one class of the largest one.
    ``count`` is a number of classes instead, shared by the groups by the largest remainders.

    The order in which classes are taken is the order of a hash of seed and name. It depends neither
    on the order of the list nor on a random number generator, and a class that is added moves few
    others.
    """
    if count is not None and not 0 < count < len(groups):
        what = f'num_val_classes={count} of {len(groups)} classes'
        raise UserError(what, f'a number from 1 to {len(groups) - 1}; None takes a fraction')
    check_within('[0, 1)', fraction=fraction)
    members = defaultdict(list)
    for name, group in groups.items():
        members[group].append(name)
    if count is None:
        share = {group: int(fraction * len(names) + 0.5) for group, names in members.items()}
        if fraction and not any(share.values()):
            share[max(members, key=lambda group: len(members[group]))] = 1
    else:
        exact = {group: count * len(names) for group, names in members.items()}
        share = {group: size // len(groups) for group, size in exact.items()}
        by_remainder = sorted(exact, key=lambda group: (-(exact[group] % len(groups)), group))
        for group in by_remainder[: count - sum(share.values())]:
            share[group] += 1
    aside: set[str] = set()
    for group, names in members.items():
        names.sort(key=lambda name: hashlib.sha256(f'{seed}:{name}'.encode()).digest())
        aside.update(names[: share[group]])
    stay = [name for name in groups if name not in aside]
    if not stay:
        what = f'a fraction of {fraction} of {len(groups)} classes leaves none'
        raise UserError(what, 'set a smaller fraction')
    return stay, [name for name in groups if name in aside]


class StanfordOnlineProducts(RetrievalDataset):
    """Stanford Online Products (Song et al., CVPR 2016).

    120,053 images of 22,634 products in 12 super-classes. Validation classes are taken from every
    super-class alike, as the stable AP paper does. ``data_root`` is the folder
    ``Stanford_Online_Products`` with the lists and the folders of the images, see
    :class:`RetrievalDataset` for the other arguments.
    """

    def read_list(self, test: bool) -> ImageList:
        name = 'Ebay_test.txt' if test else 'Ebay_train.txt'
        return SOP_LIST.read(join_path(self.data_root, name))


class VehicleID(RetrievalDataset):
    """PKU VehicleID (Liu et al., CVPR 2016), 26,267 vehicles.

    The papers on AP search every test image in all others of its list, the whole small, medium or
    large one. The data set's own protocol has one image of each vehicle, drawn at random, in the
    gallery: a field of the samples for ``gallery_key`` of ``mmrank.RetrievalMetric``.

    Args:
        data_root: Folder with ``train_test_split/`` and ``image/``.
        test_size: ``'small'``, ``'medium'`` or ``'large'``: 800, 1,600 or 2,400 vehicles; of the
            test split only.
        **kwargs: As for :class:`RetrievalDataset`.
    """

    def __init__(self, data_root: str, test_size: str = 'large', **kwargs) -> None:
        one_of('test_size', test_size, _TEST_LISTS)
        self.test_size = test_size
        kwargs.setdefault('data_prefix', 'image')
        super().__init__(data_root, **kwargs)

    def read_list(self, test: bool) -> ImageList:
        name = f'test_list_{_TEST_LISTS[self.test_size]}.txt' if test else 'train_list.txt'
        return VEHICLE_ID_LIST.read(join_path(self.data_root, 'train_test_split', name))


class INaturalistRetrieval(RetrievalDataset):
    """iNaturalist-2018 by unseen species, the split of SmoothAP.

    325,846 images of 5,690 species to train on and 136,093 of 2,452 others to test (Brown et al.,
    ECCV 2020). ``data_root`` has the images, ``train_val2018/...``, and the folder
    ``Inat_dataset_splits`` of the lists; see :class:`RetrievalDataset` for the other arguments.
    """

    def read_list(self, test: bool) -> ImageList:
        name = f'Inaturalist_{"test" if test else "train"}_set1.txt'
        return INATURALIST_LIST.read(join_path(self.data_root, 'Inat_dataset_splits', name))


class Omniglot(RetrievalDataset):
    """Handwritten characters (Lake et al., Science 2015) by alphabet.

    A class is a character, ``'Korean/character01'``; its 20 drawings are by 20 people. Splits are
    made by naming alphabets, so that training and test share no class:

        dict(type='mmrank.Omniglot', data_root='data/omniglot/',
             alphabets=('Korean', 'Latin'))

    Args:
        data_root: Folder of the alphabets' folders; ``tools/dataset_converters/omniglot.py`` makes
            it from the zip.
        alphabets: The alphabets to take; None: all.
        **kwargs: As for :class:`RetrievalDataset`, without ``split`` and ``val_fraction``.
    """

    def __init__(self, data_root: str, alphabets: Sequence[str] | None = None, **kwargs) -> None:
        self.alphabets = tuple(alphabets or ())
        super().__init__(data_root, split='trainval', **kwargs)

    def read_list(self, test: bool) -> ImageList:
        return scan_class_folders(self.img_prefix, 2, self.alphabets)


class ClassFolder(RetrievalDataset):
    """A user's own images, one folder a class, or a list of them.

    Without further settings all images are taken. The classes can be split by fractions, the same
    ones on every machine, or named by ``classes``:

        dict(type='mmrank.ClassFolder', data_root='data/mine/',
             split='train', val_fraction=0.1, test_fraction=0.5)

    Args:
        data_root: Folder of the class folders.
        split: ``'train'``, ``'val'``, ``'test'`` or ``'trainval'``, all classes but the test
            split's.
        test_fraction: Share of the classes that make the test split.
        val_fraction: Share of the remaining ones for validation.
        ann_file: List to take the images from instead of the folders: lines ``path class``, parted
            by a tab where one contains blanks, or ``path`` alone, whose folder is the class.
        depth: Levels of folders that name a class: 1 for ``class/image``, 2 for
            ``super-class/class/image``, where each super-class is split alike.
        **kwargs: As for :class:`RetrievalDataset`.
    """

    def __init__(
        self,
        data_root: str,
        split: str = 'trainval',
        test_fraction: float = 0.0,
        val_fraction: float = 0.0,
        ann_file: str = '',
        depth: int = 1,
        **kwargs,
    ) -> None:
        if split == 'test' and not test_fraction:
            raise UserError(
                "split='test' needs a test_fraction above 0. Fix: the same one in all splits, or "
                "the folder of the test images with split='trainval'"
            )
        check_at_least(1, depth=depth)
        self.test_fraction = test_fraction
        self.depth = depth
        super().__init__(
            data_root, split=split, val_fraction=val_fraction, ann_file=ann_file, **kwargs
        )

    def read_list(self, test: bool) -> ImageList:
        if self.ann_file:
            return PATH_LIST.read(self.ann_file)
        return scan_class_folders(self.img_prefix, self.depth)

    def choose_classes(self, groups: dict[str, str]) -> list[str]:
        """Set the test classes aside first, then the validation classes."""
        rest, test = split_classes(groups, self.test_fraction, self.split_seed)
        if self.split == 'test':
            return test
        return super().choose_classes({name: groups[name] for name in rest})
