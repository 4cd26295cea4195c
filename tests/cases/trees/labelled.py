"""Labels without images: data sets of them, and data samples of mmpretrain."""

from mmengine.dataset import BaseDataset


def data_samples(labels, ids=None):
    """What a head of mmpretrain receives of items of these classes."""
    from mmpretrain.structures import DataSample

    ids = range(len(labels)) if ids is None else ids
    return [
        DataSample(metainfo=dict(sample_idx=int(i))).set_gt_label(label)
        for i, label in zip(ids, labels, strict=True)
    ]


class Labels(list):
    """A class, or a list of classes, for each item; as mmpretrain's data sets have them."""

    def __init__(self, labels, classes=()):
        super().__init__(labels)
        self.metainfo = dict(classes=classes)

    def get_data_info(self, index):
        """An item."""
        return dict(gt_label=self[index])


class LabelledItems(BaseDataset):
    """Items of mmengine's data sets, as given, behind the steps of a pipeline."""

    def __init__(self, items, classes=('a', 'b'), pipeline=()):
        self.items = items
        names = dict(classes=classes)
        super().__init__(metainfo=names, pipeline=list(pipeline), serialize_data=False)

    def load_data_list(self):
        """The items."""
        return [dict(item) for item in self.items]
