"""Data sets one after the other, each sample with an index of its own."""

from mmengine.dataset import ConcatDataset

from mmrank.registry import DATASETS

from .one_size import OneSizeBatches


@DATASETS.register_module()
class IndexedConcatDataset(OneSizeBatches, ConcatDataset):
    """mmengine's ``ConcatDataset`` with ``sample_idx`` over all parts.

    In mmengine's each part counts its samples from 0, so that two samples have one index and would
    share the state that a loss keeps per sample. Here ``sample_idx`` is the position in the whole,
    and ``dataset_idx`` says which part a sample is from: by it ``mmrank.KNNMetric`` and
    ``mmrank.LinearProbeMetric`` tell training from test images.

    Arguments are those of mmengine's ``ConcatDataset``. The pipelines of the parts run first; the
    two numbers are then written into the meta information of ``data_samples``, or into the item
    where it has none. Images of several sizes in a batch are refused by name.
    """

    def __getitem__(self, idx: int) -> dict:
        """The item at a position, with both numbers."""
        item = super().__getitem__(idx)
        dataset_idx, _ = self._get_ori_dataset_idx(idx)
        position = idx if idx >= 0 else len(self) + idx
        numbers = dict(sample_idx=position, dataset_idx=dataset_idx)
        if 'data_samples' in item:
            item['data_samples'].set_metainfo(numbers)
        else:
            item.update(numbers)
        return item

    def get_data_info(self, idx: int) -> dict:
        """Data info of a sample of a part, with both indices."""
        dataset_idx, _ = self._get_ori_dataset_idx(idx)
        info = super().get_data_info(idx)
        return {**info, 'sample_idx': idx, 'dataset_idx': dataset_idx}
