"""SimCLR's augmentations for whole batches, on any device."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

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
    """A random part of each image at the size of the whole, maybe mirrored.

    The whole batch is sampled at once, bilinearly. Source: SimCLR (ICML
    2020), appendix A.

    Args:
        images: (B, C, H, W) floats.
        scale: Least and largest share of the area, drawn uniformly.
        ratio: Least and largest width over height, drawn log-uniformly; where the part would not
            fit, it is as wide or as high as the image.
        flip_prob: Probability of a mirror image.

    Returns:
        (B, C, H, W).
    """
    draw = images.new_empty(5, images.size(0)).uniform_()
    area = scale[0] + (scale[1] - scale[0]) * draw[0]
    low, high = (math.log(x) for x in ratio)
    shape = (low + (high - low) * draw[1]).exp()
    width = (area * shape).sqrt().clamp(max=1)
    height = (area / shape).sqrt().clamp(max=1)
    mirror = torch.where(draw[4] < flip_prob, -1.0, 1.0)
    zero = torch.zeros_like(width)
    theta = torch.stack(
        [
            torch.stack([width * mirror, zero, (1 - width) * (2 * draw[2] - 1)]),
            torch.stack([zero, height, (1 - height) * (2 * draw[3] - 1)]),
        ]
    ).permute(2, 0, 1)
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
    """Random brightness, contrast, saturation and hue; some images grey.

    In this order and as one matrix product per image: all four are affine in the colours of a
    pixel, if a hue is turned about the grey axis (in YIQ,
    not in HSV) and numbers are cut to [0, 1] once, at the end. Source: SimCLR (ICML 2020), appendix
    A, whose strength is 0.8, 0.8, 0.8 and 0.2 for ImageNet and half of that for CIFAR.

    Args:
        images: (B, 3, H, W) floats in [0, 1], red first.
        brightness: Largest relative change.
        contrast: Likewise.
        saturation: Likewise.
        hue: Largest turn, 0.5 being half a circle.
        jitter_prob: Probability that an image is changed at all.
        gray_prob: Probability of a grey image.

    Returns:
        (B, 3, H, W) in [0, 1].
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
    middle = torch.stack(
        [
            torch.stack([one, zero, zero]),
            torch.stack([zero, cosine, -sine]),
            torch.stack([zero, sine, cosine]),
        ]
    ).permute(2, 0, 1)
    yiq, rgb = (x.to(images, non_blocking=True) for x in (_TO_YIQ, _TO_RGB))
    matrix = rgb @ middle @ yiq
    pixels = images.flatten(2)
    # The mean luma, about which contrast is, is grey: the matrix keeps it.
    luma = (yiq[0] @ pixels).mean(1) * bright
    offset = (1 - contrasted) * luma
    out = (bright * contrasted)[:, None, None] * (matrix @ pixels)
    out = (out + offset[:, None, None]).clamp_(0, 1)
    return out.view_as(images)
