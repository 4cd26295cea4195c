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


def random_crops(
    images: Tensor,
    scale: Sequence[float] = (0.2, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
    flip_prob: float = 0.5,
) -> Tensor:
    """A random part of each of (B, C, H, W) images at the size of the whole, maybe mirrored.

    The share of the area is drawn uniformly from ``scale``, width over height log-uniformly from
    ``ratio``; where the part would not fit, it is as wide or as high as the image. The whole batch
    is sampled at once, bilinearly. Source: SimCLR (ICML 2020), appendix A.
    """
    draw = images.new_empty(5, images.size(0)).uniform_()
    area = scale[0] + (scale[1] - scale[0]) * draw[0]
    low, high = (math.log(x) for x in ratio)
    shape = (low + (high - low) * draw[1]).exp()
    width = (area * shape).sqrt().clamp(max=1)
    height = (area / shape).sqrt().clamp(max=1)
    mirror = torch.where(draw[4] < flip_prob, -1.0, 1.0)
    zero = torch.zeros_like(width)
    theta = _matrices(
        [width * mirror, zero, (1 - width) * (2 * draw[2] - 1)],
        [zero, height, (1 - height) * (2 * draw[3] - 1)],
    )
    grid = affine_grid(theta.to(images), images.shape, align_corners=False)
    return grid_sample(images, grid, padding_mode='border', align_corners=False)


def random_colours(
    images: Tensor,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    jitter_prob: float = 0.8,
    gray_prob: float = 0.2,
) -> Tensor:
    """Random brightness, contrast, saturation and hue of (B, 3, H, W) in [0, 1]; some grey.

    In this order and as one matrix product per image: all four are affine in the colours of a
    pixel, red first, if a hue is turned about the grey axis (in YIQ, not in HSV) and numbers are
    cut to [0, 1] once, at the end. The numbers are the largest relative changes and the largest
    turn, 0.5 being half a circle. Source: SimCLR (ICML 2020), appendix A, whose strength is 0.8,
    0.8, 0.8 and 0.2 for ImageNet and half of that for CIFAR.
    """
    batch = images.size(0)
    draw = images.new_empty(6, batch).uniform_()
    jittered = draw[4] < jitter_prob
    strengths = (brightness, contrast, saturation, hue)
    changes = [torch.where(jittered, x * (2 * u - 1), 0) for x, u in zip(strengths, draw)]
    bright, contrasted, saturated = (1 + x for x in changes[:3])
    saturated = torch.where(draw[5] < gray_prob, 0, saturated)
    # Chroma is scaled and turned, luma stays.
    turn = 2 * math.pi * changes[3]
    cosine, sine = saturated * turn.cos(), saturated * turn.sin()
    zero, one = torch.zeros_like(turn), torch.ones_like(turn)
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
    are SimCLR's without blur: see :func:`random_crops` and :func:`random_colours`. Random numbers
    are torch's own, so ``mmrank.RNGStateHook`` resumes them.

    Args:
        mean: Mean of each channel, red first, in 0 to 255.
        std: Standard deviation of each channel, likewise.
        bgr_to_rgb: Whether the loader returns BGR images.
        channels_last: Whether images lie pixel by pixel in memory, which convolutions on CPUs and
            in half precision on GPUs are faster for.
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        bgr_to_rgb: bool = False,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        for name, values in (('mean', mean), ('std', std)):
            if len(values) != 3:
                raise ValueError(
                    f'{name} must be three numbers, one for each colour, got {values!r}'
                )
            column = torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)
            self.register_buffer(name, column, persistent=False)
        self.bgr_to_rgb = bgr_to_rgb
        self.channels_last = channels_last

    def forward(self, data: dict, training: bool = False) -> dict:
        """``inputs``, two views, (B, 3, H, W), in training, else the images; ``data_samples``."""
        data = self.cast_data(data)
        images = data['inputs']
        if not isinstance(images, Tensor) or images.dim() != 4:
            raise ValueError(
                'TwoViewPreprocessor needs one (B, 3, H, W) tensor of images, got '
                f'{type(images).__name__}; leave MultiView out of the pipeline and take '
                'collate_fn=default_collate'
            )
        if images.size(1) != 3:
            raise ValueError(f'images must have 3 channels, got {tuple(images.shape)}')
        if self.bgr_to_rgb:
            images = images.flip(1)
        images = images.float()
        if training:
            images = images / 255
            inputs = [self._finished(255 * self._view(images)) for _ in range(2)]
        else:
            inputs = self._finished(images)
        return dict(inputs=inputs, data_samples=data.get('data_samples'))

    def _view(self, images: Tensor) -> Tensor:
        return random_colours(random_crops(images))

    def _finished(self, images: Tensor) -> Tensor:
        images = (images - self.mean) / self.std
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images
