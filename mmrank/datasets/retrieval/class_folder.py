"""Any tree of class folders. Imports mmpretrain."""

from mmrank.datasets.retrieval.class_split import split_classes
from mmrank.datasets.retrieval.image_lists import (
    ImageList,
    empty_class_folders,
    read_path_list,
    scan_class_folders,
)
from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset


class ClassFolder(RetrievalDataset):
    """A user's own images, one folder a class, or a list of them.

    Without further settings all images are taken. The classes can be split
    by fractions, the same ones on every machine, or named by ``classes``:

        dict(type='mmrank.ClassFolder', data_root='data/mine/',
             split='train', val_fraction=0.1, test_fraction=0.5)

    Args:
        data_root: Folder of the class folders.
        split: ``'train'``, ``'val'``, ``'test'`` or ``'trainval'``, all classes but those of the
            test split.
        test_fraction: Share of the classes that make the test split.
        val_fraction: Share of the remaining ones for validation.
        ann_file: List to take the images from instead of the folders: lines ``path class``, parted
            by a tab where one contains blanks, or ``path`` alone, whose folder is the class.
        depth: Levels of folders that name a class: 1 for ``class/image``, 2 for
            ``super-class/class/image``, where each super-class is split alike.
        **kwargs: As for :class:`RetrievalDataset`.

    Raises:
        UserError: If the folder or the list cannot be read.
        ValueError: If ``split`` and the fractions disagree.
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
            raise ValueError(
                "split='test' needs a test_fraction above 0, got "
                f'{test_fraction}. Fix: set it, the same in all splits, or '
                "use the folder of the test images with split='trainval'"
            )
        if depth < 1:
            raise ValueError(f'depth must be at least 1, got {depth}')
        self.test_fraction = test_fraction
        self.depth = depth
        super().__init__(
            data_root, split=split, val_fraction=val_fraction, ann_file=ann_file, **kwargs
        )

    def read_list(self, test: bool) -> ImageList:
        """Read the list, or find the images of the folders."""
        if self.ann_file:
            return read_path_list(self.ann_file)
        return scan_class_folders(self.img_prefix, self.depth)

    def empty_classes(self) -> list[str]:
        """Return class folders without an image; none where there's a list."""
        if self.ann_file:
            return []
        return empty_class_folders(self.img_prefix, self.depth)

    def choose_classes(self, groups: dict[str, str]) -> list[str]:
        """Set the test classes aside first, then those of validation."""
        rest, test = split_classes(groups, self.test_fraction, self.split_seed)
        if self.split == 'test':
            return test
        return super().choose_classes({name: groups[name] for name in rest})
