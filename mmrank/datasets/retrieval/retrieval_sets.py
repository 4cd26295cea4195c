"""The retrieval data sets. Imports mmpretrain."""

from collections.abc import Sequence

from mmengine.fileio import join_path

from mmrank.datasets.retrieval.image_lists import (
    INATURALIST_LIST,
    PATH_LIST,
    SOP_LIST,
    VEHICLE_ID_LIST,
    ImageList,
    scan_class_folders,
)
from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset, split_classes
from mmrank.errors import UserError
from mmrank.settings import check_at_least, one_of

_TEST_LISTS = {'small': 800, 'medium': 1600, 'large': 2400}


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
