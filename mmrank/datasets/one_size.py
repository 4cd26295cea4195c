"""Refuses batches of images of several sizes, naming the images."""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.dataset import ConcatDataset, default_collate
from torch import Tensor

from mmrank.errors import UserError
from mmrank.registry import DATASETS, FUNCTIONS


class OneSizeBatches:
    """Mixin for data sets of mmpretrain: refuses batches of images of several sizes.

    Torch would only say that it cannot stack them; a collate function that pads them would make the
    features of an image depend on its batch. Behind a wrapper such as mmengine's ``RepeatDataset``,
    :func:`one_size_collate` does the same.
    """

    def __getitems__(self, indices: Sequence[int]) -> list[dict]:
        samples = [self[int(index)] for index in indices]
        _refuse_several_sizes(samples)
        return samples


@FUNCTIONS.register_module()
def one_size_collate(batch: Sequence[Mapping]) -> Any:
    """Stack the samples of a batch, or name the images that do not fit, by a ``UserError``.

    In a config: ``collate_fn=dict(type='mmrank.one_size_collate')``. Takes samples of any data set,
    with or without wrappers, and returns what mmengine's ``default_collate`` makes of them.
    """
    _refuse_several_sizes(batch)
    return default_collate(batch)


def _refuse_several_sizes(samples: Sequence) -> None:
    images: dict[tuple, str] = {}
    for place, sample in enumerate(samples):
        inputs = sample.get('inputs') if isinstance(sample, dict) else None
        if isinstance(inputs, Tensor):
            path = getattr(sample.get('data_samples'), 'img_path', f'sample {place} of the batch')
            images.setdefault(tuple(inputs.shape), path)
    if len(images) > 1:
        listed = [f'{path} is {"x".join(map(str, size))}' for size, path in images.items()]
        raise UserError(
            f'the images of a batch have several sizes: {", ".join(listed[:3])}. Fix: let the '
            "pipeline give them one, before PackInputs: dict(type='ResizeEdge', scale=256), "
            "dict(type='CenterCrop', crop_size=224); for training "
            "dict(type='RandomResizedCrop', scale=224)"
        )


@DATASETS.register_module()
class IndexedConcatDataset(OneSizeBatches, ConcatDataset):
    """mmengine's ``ConcatDataset`` with ``sample_idx`` over all parts.

    In mmengine's each part counts its samples from 0, so that two samples have one index and would
    share the state that a loss keeps per sample. Here ``sample_idx`` is the position in the whole,
    and ``dataset_idx`` says which part a sample is from: by it ``mmrank.KNNMetric`` and
    ``mmrank.LinearProbeMetric`` tell training from test images.

    See mmengine's ``ConcatDataset`` for the arguments. The pipelines of the parts run first; the
    two numbers are then written into the meta information of ``data_samples``, or into the item
    where it has none.
    """

    def __getitem__(self, idx: int) -> dict:
        item = super().__getitem__(idx)
        numbers = self._numbers(idx)
        if 'data_samples' in item:
            item['data_samples'].set_metainfo(numbers)
        else:
            item.update(numbers)
        return item

    def get_data_info(self, idx: int) -> dict:
        return {**super().get_data_info(idx), **self._numbers(idx)}

    def _numbers(self, idx: int) -> dict[str, int]:
        dataset_idx, _ = self._get_ori_dataset_idx(idx)
        return dict(sample_idx=idx % len(self), dataset_idx=dataset_idx)
