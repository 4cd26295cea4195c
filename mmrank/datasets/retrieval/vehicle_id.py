"""PKU VehicleID. Imports mmpretrain."""

import random

from mmengine.fileio import join_path

from mmrank.datasets.retrieval.image_lists import ImageList, read_vehicle_id_list
from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset

_TEST_LISTS = {'small': 800, 'medium': 1600, 'large': 2400}
_GALLERIES = ('all', 'one_per_class')


class VehicleID(RetrievalDataset):
    """PKU VehicleID (Liu et al., CVPR 2016), 26,267 vehicles.

    The papers on AP search every test image in all others of its list: the stable AP paper gives
    7,332, 12,995 and 20,038 images as the galleries, which is the whole small, medium and large
    list. (SOPRC's mAUPRC is also lower than its Recall@1, which cannot be where a query has one
    positive.) So ``gallery='all'`` is the default. The data set's own protocol puts one image of
    each vehicle, drawn at random, into the gallery and searches it with the rest:
    ``gallery='one_per_class'`` marks them by ``in_gallery``, for
    ``RetrievalMetric(gallery_key='in_gallery')`` and ``PackInputs`` with ``'in_gallery'`` among its
    ``meta_keys``. It is meant to be repeated over several ``gallery_seed`` and averaged.

    Args:
        data_root: Folder with ``train_test_split/`` and ``image/``.
        test_size: ``'small'``, ``'medium'`` or ``'large'``: 800, 1,600 or 2,400 vehicles; of the
            test split only.
        gallery: See above; of any split but training.
        gallery_seed: Another seed puts other images into the gallery.
        data_prefix: Folder of the images within ``data_root``.
        **kwargs: As for :class:`RetrievalDataset`.

    Raises:
        ValueError: If ``test_size`` or ``gallery`` is unknown.
    """

    def __init__(
        self,
        data_root: str,
        test_size: str = 'large',
        gallery: str = 'all',
        gallery_seed: int = 0,
        data_prefix: str = 'image',
        **kwargs,
    ) -> None:
        if test_size not in _TEST_LISTS:
            raise ValueError(f'test_size must be one of {tuple(_TEST_LISTS)}, got {test_size!r}')
        if gallery not in _GALLERIES:
            raise ValueError(f'gallery must be one of {_GALLERIES}, got {gallery!r}')
        self.test_size = test_size
        self.gallery = gallery
        self.gallery_seed = gallery_seed
        super().__init__(data_root, data_prefix=data_prefix, **kwargs)

    def read_list(self, test: bool) -> ImageList:
        """Read ``train_list.txt`` or the test list of the size."""
        name = 'train_list.txt'
        if test:
            name = f'test_list_{_TEST_LISTS[self.test_size]}.txt'
        return read_vehicle_id_list(join_path(self.data_root, 'train_test_split', name))

    def load_data_list(self) -> list[dict]:
        """Return the items, with ``in_gallery`` where it is requested."""
        items = super().load_data_list()
        if self.gallery == 'one_per_class':
            by_class: dict[int, list[dict]] = {}
            for item in items:
                item['in_gallery'] = False
                by_class.setdefault(item['gt_label'], []).append(item)
            rng = random.Random(self.gallery_seed)
            for label in sorted(by_class):
                own = by_class[label]
                # random() is the one method that stays the same in all versions of Python.
                own[int(rng.random() * len(own))]['in_gallery'] = True
        return items
