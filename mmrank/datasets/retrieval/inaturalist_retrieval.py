"""The retrieval split of iNaturalist-2018. Imports mmpretrain."""

from mmengine.fileio import join_path

from mmrank.datasets.retrieval.image_lists import ImageList, read_inaturalist_list
from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset


class INaturalistRetrieval(RetrievalDataset):
    """iNaturalist-2018 by unseen species, the split of SmoothAP.

    325,846 images of 5,690 species to train on and 136,093 of 2,452 others to test (Brown et al.,
    ECCV 2020).

    Args:
        data_root: Folder with the images, ``train_val2018/...``, and the folder
            ``Inat_dataset_splits`` of the lists.
        **kwargs: As for :class:`RetrievalDataset`.
    """

    def read_list(self, test: bool) -> ImageList:
        """Read the list of the training or the test species."""
        name = f'Inaturalist_{"test" if test else "train"}_set1.txt'
        return read_inaturalist_list(join_path(self.data_root, 'Inat_dataset_splits', name))
