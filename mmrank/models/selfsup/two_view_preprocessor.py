"""Data preprocessor that makes the two views of a batch itself."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseDataPreprocessor
from torch import Tensor

from mmrank.registry import MODELS

from .random_views import random_colours, random_crops


@MODELS.register_module()
class TwoViewPreprocessor(BaseDataPreprocessor):
    """Augments whole batches where the model is, instead of in the loader.

    For small images, of which a network takes more in a second than a loader augments one by one.
    In training it returns two views of each image, in evaluation the images. The loader returns
    ``inputs``, (B, 3, H, W) uint8, and ``data_samples``; its pipeline needs no ``MultiView``. Views
    are SimCLR's without blur: see :func:`random_crops` and :func:`random_colours`. Random numbers
    are torch's own, so ``mmrank.RNGStateHook`` resumes them.

    Args:
        mean: Mean of each channel, red first, in 0 to 255.
        std: Standard deviation of each channel, likewise.
        crop: Arguments of :func:`random_crops`.
        colours: Arguments of :func:`random_colours`.
        bgr_to_rgb: Whether the loader returns BGR images.
        channels_last: Whether images lie pixel by pixel in memory, which convolutions on CPUs and
            in half precision on GPUs are faster for.
        non_blocking: See mmengine's ``BaseDataPreprocessor``.
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        crop: dict | None = None,
        colours: dict | None = None,
        bgr_to_rgb: bool = False,
        channels_last: bool = False,
        non_blocking: bool = False,
    ) -> None:
        super().__init__(non_blocking)
        for name, values in (('mean', mean), ('std', std)):
            if len(values) != 3:
                raise ValueError(
                    f'{name} must be three numbers, one for each colour, got {values!r}'
                )
        self.register_buffer('mean', _column(mean), persistent=False)
        self.register_buffer('std', _column(std), persistent=False)
        self.crop, self.colours = crop or {}, colours or {}
        self.bgr_to_rgb = bgr_to_rgb
        self.channels_last = channels_last

    def forward(self, data: dict, training: bool = False) -> dict:
        """Views in training, images in evaluation, both normalised.

        Args:
            data: ``inputs`` and ``data_samples``.
            training: Which of the two.

        Returns:
            ``inputs``: a list of two (B, 3, H, W), or one; ``data_samples``.

        Raises:
            ValueError: If the inputs are no batch of colour images.
        """
        data = self.cast_data(data)
        images = data['inputs']
        if not isinstance(images, Tensor) or images.dim() != 4:
            raise ValueError(
                'TwoViewPreprocessor needs one (B, 3, H, W) tensor of images, '
                f'got {type(images).__name__}; leave MultiView out of the '
                'pipeline and take collate_fn=default_collate'
            )
        if images.size(1) != 3:
            raise ValueError(f'images must have 3 channels, got {tuple(images.shape)}')
        if self.bgr_to_rgb:
            images = images.flip(1)
        images = images.float()
        if training:
            images = images / 255
            inputs = [
                self._finished(
                    255 * random_colours(random_crops(images, **self.crop), **self.colours)
                )
                for _ in range(2)
            ]
        else:
            inputs = self._finished(images)
        return dict(inputs=inputs, data_samples=data.get('data_samples'))

    def _finished(self, images: Tensor) -> Tensor:
        images = (images - self.mean) / self.std
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images


def _column(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)
