"""SimCLR's augmentations for whole batches, and a data preprocessor that makes two views."""

import math
from collections.abc import Sequence

import torch
from mmengine.model import BaseDataPreprocessor
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from mmrank.registry import MODELS

#: Red, green and blue to luma and two chroma axes (YIQ), and back. Inverted here, since on a GPU an
#: inversion makes the host wait.
_TO_YIQ = torch.tensor(
    [[0.299, 0.587, 0.114], [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]],
    dtype=torch.float64,
)
_TO_RGB = torch.linalg.inv(_TO_YIQ)
#: Largest relative changes of brightness, contrast and saturation, and largest turn of the hue.
_STRENGTHS = (0.4, 0.4, 0.4, 0.1)


def _random_crops(images: Tensor) -> Tensor:
    """A random part of each of (B, C, H, W) images at the size of the whole, half of them mirrored.

    The share of the area is uniform in 0.2 to 1, width over height log-uniform in 3/4 to 4/3; where
    the part would not fit, it is as wide or as high as the image. The whole batch is sampled at
    once, bilinearly. Source: SimCLR (ICML 2020), appendix A.
    """
    draw = images.new_empty(5, images.size(0)).uniform_()
    area = 0.2 + 0.8 * draw[0]
    shape = (math.log(4 / 3) * (2 * draw[1] - 1)).exp()
    width = (area * shape).sqrt().clamp(max=1)
    height = (area / shape).sqrt().clamp(max=1)
    mirror = torch.where(draw[4] < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(width)
    theta = _matrices(
        [width * mirror, zero, (1 - width) * (2 * draw[2] - 1)],
        [zero, height, (1 - height) * (2 * draw[3] - 1)],
    )
    grid = affine_grid(theta.to(images), images.shape, align_corners=False)
    return grid_sample(images, grid, padding_mode='border', align_corners=False)


def _random_colours(images: Tensor) -> Tensor:
    """Random brightness, contrast, saturation and hue of (B, 3, H, W) in [0, 1]; some grey.

    In this order and as one matrix product per image: all four are affine in the colours of a
    pixel, red first, if a hue is turned about the grey axis (in YIQ, not in HSV) and numbers are
    cut to [0, 1] once, at the end. Source: SimCLR (ICML 2020), appendix A, with half of the
    strength that it has for ImageNet, as for CIFAR.
    """
    draw = images.new_empty(6, images.size(0)).uniform_()
    jittered = draw[4] < 0.8
    changes = [torch.where(jittered, x * (2 * u - 1), 0) for x, u in zip(_STRENGTHS, draw)]
    bright, contrasted, saturated = (1 + x for x in changes[:3])
    saturated = torch.where(draw[5] < 0.2, 0, saturated)
    # Chroma is scaled and turned, luma stays.
    turn = 2 * math.pi * changes[3]
    cosine = saturated * turn.cos()
    sine = saturated * turn.sin()
    zero = torch.zeros_like(turn)
    one = torch.ones_like(turn)
    middle = _matrices([one, zero, zero], [zero, cosine, -sine], [zero, sine, cosine])
    yiq, rgb = (x.to(images, non_blocking=True) for x in (_TO_YIQ, _TO_RGB))
    matrix = rgb @ middle @ yiq
    pixels = images.flatten(2)
    # The mean luma, about which contrast is, is grey: the matrix keeps it.
    luma = (yiq[0] @ pixels).mean(1) * bright
    offset = (1 - contrasted) * luma
    out = (bright * contrasted)[:, None, None] * (matrix @ pixels)
    out = (out + offset[:, None, None]).clamp_(0, 1)
    return out.view_as(images)


def _matrices(*rows: list[Tensor]) -> Tensor:
    """(B, rows, columns) of entries that are (B,) each."""
    return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)


@MODELS.register_module()
class TwoViewPreprocessor(BaseDataPreprocessor):
    """Augments whole batches where the model is, instead of in the loader.

    For small images, of which a network takes more in a second than a loader augments one by one.
    In training it returns two views of each image, in evaluation the images. The loader returns
    ``inputs``, (B, 3, H, W) uint8, and ``data_samples``; its pipeline needs no ``MultiView``. Views
    are SimCLR's without blur, of torch's random numbers, so ``mmrank.RNGStateHook`` resumes them.

    Args:
        mean: Mean of each channel, red first, in 0 to 255.
        std: Standard deviation of each channel, likewise.
        channels_last: Whether images lie pixel by pixel in memory, which convolutions on CPUs and
            in half precision on GPUs are faster for.
    """

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], channels_last: bool = False
    ) -> None:
        super().__init__()
        for name, values in (('mean', mean), ('std', std)):
            column = torch.tensor(values, dtype=torch.float32).view(3, 1, 1)
            self.register_buffer(name, column, persistent=False)
        self.channels_last = channels_last

    def forward(self, data: dict, training: bool = False) -> dict:
        """``inputs``, two views, (B, 3, H, W), in training, else the images; ``data_samples``."""
        data = self.cast_data(data)
        images = data['inputs']
        if not isinstance(images, Tensor) or images.dim() != 4 or images.size(1) != 3:
            raise ValueError(
                'TwoViewPreprocessor needs one (B, 3, H, W) tensor of images, got '
                f'{type(images).__name__} of shape {tuple(getattr(images, "shape", ()))}; leave '
                'MultiView out of the pipeline and take collate_fn=default_collate'
            )
        images = images.float()
        if training:
            images = images / 255
            views = [_random_colours(_random_crops(images)) for _ in range(2)]
            inputs = [self._finished(255 * view) for view in views]
        else:
            inputs = self._finished(images)
        return dict(inputs=inputs, data_samples=data.get('data_samples'))

    def _finished(self, images: Tensor) -> Tensor:
        images = (images - self.mean) / self.std
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images
