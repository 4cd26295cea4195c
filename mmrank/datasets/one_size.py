"""Refuses batches of images of several sizes, naming the images."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmengine.dataset import default_collate
from torch import Tensor

from mmrank.errors import UserError
from mmrank.registry import FUNCTIONS


class OneSizeBatches:
    """Put before a data set of mmpretrain: the images of a batch fit.

    Torch would only say that it cannot stack them; a collate function that pads them would make the
    features of an image depend on its batch. Behind a wrapper such as mmengine's ``RepeatDataset``,
    :func:`one_size_collate` does the same.
    """

    def __getitems__(self, indices: Sequence[int]) -> list[dict]:
        """The samples of a batch.

        Args:
            indices: Of the samples.

        Returns:
            The samples, for the collate function of the data loader.

        Raises:
            UserError: If their images have several sizes.
        """
        samples = [self[int(index)] for index in indices]
        _refuse_several_sizes(
            samples, type(self).__name__, lambda place: self.get_data_info(int(indices[place]))
        )
        return samples


@FUNCTIONS.register_module()
def one_size_collate(batch: Sequence[Mapping]) -> Any:
    """Stack the samples of a batch, or name the images that do not fit.

    In a config: ``collate_fn=dict(type='mmrank.one_size_collate')``.

    Args:
        batch: Samples of any data set, with or without wrappers.

    Returns:
        What mmengine's ``default_collate`` makes of them.

    Raises:
        UserError: If their images have several sizes.
    """
    _refuse_several_sizes(batch, 'the data set', lambda place: batch[place]['data_samples'])
    return default_collate(batch)


def _refuse_several_sizes(samples: Sequence, source: str, info_of: Callable[[int], Any]) -> None:
    sizes: dict[tuple, int] = {}
    for place, sample in enumerate(samples):
        inputs = sample.get('inputs') if isinstance(sample, dict) else None
        if isinstance(inputs, Tensor):
            sizes.setdefault(tuple(inputs.shape), place)
    if len(sizes) > 1:
        listed = ', '.join(
            f'{_image(info_of, place)} is {"x".join(map(str, size))}'
            for size, place in list(sizes.items())[:3]
        )
        raise UserError(
            f'the images of a batch have several sizes after the pipeline of {source}: {listed}. '
            "Fix: let the pipeline give them one, before PackInputs: dict(type='ResizeEdge', "
            "scale=256), dict(type='CenterCrop', crop_size=224); for training "
            "dict(type='RandomResizedCrop', scale=224)"
        )


def _image(info_of: Callable[[int], Any], place: int) -> str:
    try:
        found = info_of(place).get('img_path')
    except (KeyError, AttributeError):  # no description of the sample
        found = None
    return str(found or f'sample {place} of the batch')
