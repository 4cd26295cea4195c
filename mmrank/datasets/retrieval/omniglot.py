"""Omniglot by alphabet. Imports mmpretrain."""

from collections.abc import Sequence

from mmrank.datasets.retrieval.image_lists import ImageList, empty_class_folders, scan_class_folders
from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset


class Omniglot(RetrievalDataset):
    """Handwritten characters (Lake et al., Science 2015) by alphabet.

    A class is a character, ``'Korean/character01'``; its 20 drawings are by
    20 people. Splits are made by naming alphabets, so that training and test share no class:

        dict(type='mmrank.Omniglot', data_root='data/omniglot/',
             alphabets=('Korean', 'Latin'))

    Args:
        data_root: Folder of the alphabets' folders; ``tools/dataset_converters/omniglot.py`` makes
            it from the zip.
        alphabets: The alphabets to take; None: all.
        data_prefix: Folder of the alphabets within ``data_root``.
        **kwargs: As for :class:`RetrievalDataset`, without ``split`` and ``val_fraction``.

    Raises:
        UserError: If an alphabet is not there.
        TypeError: If ``alphabets`` is a single string.
    """

    def __init__(self, data_root: str, alphabets: Sequence[str] | None = None, **kwargs) -> None:
        if isinstance(alphabets, str):
            raise TypeError(
                f'alphabets must be a list of names, got {alphabets!r}; write ({alphabets!r},)'
            )
        self.alphabets = tuple(alphabets or ())
        super().__init__(data_root, split='trainval', **kwargs)

    def read_list(self, test: bool) -> ImageList:
        """Find the drawings."""
        return scan_class_folders(self.img_prefix, 2, self.alphabets)

    def empty_classes(self) -> list[str]:
        """Return characters without a drawing."""
        return empty_class_folders(self.img_prefix, 2, self.alphabets)
