"""Stanford Online Products. Imports mmpretrain."""

from mmengine.fileio import join_path

from mmrank.datasets.retrieval.image_lists import ImageList, read_sop_list
from mmrank.datasets.retrieval.retrieval_dataset import RetrievalDataset


class StanfordOnlineProducts(RetrievalDataset):
    """Stanford Online Products (Song et al., CVPR 2016).

    120,053 images of 22,634 products in 12 super-classes: 11,318 products in ``Ebay_train.txt``,
    11,316 others in ``Ebay_test.txt``. Validation classes are taken from every super-class alike,
    as the stable AP paper does.

    Args:
        data_root: Folder ``Stanford_Online_Products`` with the lists and the folders of the images.
        **kwargs: As for :class:`RetrievalDataset`.
    """

    def read_list(self, test: bool) -> ImageList:
        """Read ``Ebay_train.txt`` or ``Ebay_test.txt``."""
        name = 'Ebay_test.txt' if test else 'Ebay_train.txt'
        return read_sop_list(join_path(self.data_root, name))
