"""Refuses batches of images of several sizes, naming the images."""

from collections.abc import Sequence

from torch import Tensor

from mmrank.errors import UserError


class OneSizeBatches:
    """Put before a data set of mmpretrain: the images of a batch fit.

    Torch would only say that it cannot stack them; a collate function that
    pads them would make the features of an image depend on its batch.
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
        sizes: dict[tuple, int] = {}
        for index, sample in zip(indices, samples):
            inputs = sample.get('inputs') if isinstance(sample, dict) else None
            if isinstance(inputs, Tensor):
                sizes.setdefault(tuple(inputs.shape), int(index))
        if len(sizes) > 1:
            listed = ', '.join(
                f'{self._image_of(index)} is {"x".join(map(str, size))}'
                for size, index in list(sizes.items())[:3]
            )
            raise UserError(
                'the images of a batch have several sizes after the pipeline '
                f'of {type(self).__name__}: {listed}. Fix: let the pipeline '
                'give them one, before PackInputs: '
                "dict(type='ResizeEdge', scale=256), "
                "dict(type='CenterCrop', crop_size=224); for training "
                "dict(type='RandomResizedCrop', scale=224)"
            )
        return samples

    def _image_of(self, index: int) -> str:
        return str(self.get_data_info(index).get('img_path', f'item {index}'))
