"""RoIAlign and RoIPool."""

import math

import torch
import torchvision  # noqa: F401  # registers torch.ops.torchvision
from torch import Tensor

from .precision import at_least_float32

_MAX = 0
#: What mmcv gives for a RoI without a sample, and where it says that it took none.
_LOWEST, _NOWHERE = -10000.0, -1.0


def _corners(y: Tensor, x: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return indices and weights of the four pixels around points, shape (..., 4).

    Weights of a point outside the image are 0.
    """
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y = y.clamp(0, height - 1)
    x = x.clamp(0, width - 1)
    top = y.floor().long()
    left = x.floor().long()
    bottom = (top + 1).clamp(max=height - 1)
    right = (left + 1).clamp(max=width - 1)
    down = y - top
    along = x - left
    index = [top * width + left, top * width + right, bottom * width + left, bottom * width + right]
    weight = [(1 - down) * (1 - along), (1 - down) * along, down * (1 - along), down * along]
    return torch.stack(index, dim=-1), torch.stack(weight, dim=-1) * inside[..., None]


def _bin_samples(start: Tensor, length: Tensor, bins: int, sampling_ratio: int) -> Tensor:
    """Return the coordinates of the samples of each bin, shape (bins, samples)."""
    size = length / bins
    number = sampling_ratio if sampling_ratio > 0 else max(math.ceil(size.item()), 0)
    first = start + torch.arange(bins, device=start.device) * size
    steps = torch.arange(number, device=start.device).to(start) + 0.5
    return first[:, None] + steps * size / max(number, 1)


def _max_of_bins(
    image: Tensor,
    box: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    sampling_ratio: int,
    aligned: bool,
) -> None:
    """Write the largest sample of each bin of one RoI, and where it was taken."""
    channels, height, width = image.shape
    size = box[2:] - box[:2]
    if not aligned:
        size = size.clamp(min=1)
    ys = _bin_samples(box[1], size[1], output.shape[1], sampling_ratio)
    xs = _bin_samples(box[0], size[0], output.shape[2], sampling_ratio)
    if not (ys.numel() and xs.numel()):
        output.fill_(_LOWEST)
        argmax_y.fill_(_NOWHERE)
        argmax_x.fill_(_NOWHERE)
        return
    # (bins down, bins along, samples of a bin)
    y = ys[:, None, :, None].expand(-1, len(xs), -1, xs.shape[1]).flatten(2)
    x = xs[None, :, None, :].expand(len(ys), -1, ys.shape[1], -1).flatten(2)
    index, weight = _corners(y, x, height, width)
    samples = (image.flatten(1)[:, index] * weight).sum(dim=-1)
    best, place = samples.max(dim=-1)
    output.copy_(best)
    argmax_y.copy_(y.expand(channels, -1, -1, -1).gather(-1, place[..., None])[..., 0])
    argmax_x.copy_(x.expand(channels, -1, -1, -1).gather(-1, place[..., None])[..., 0])


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the mean or the largest sample of each bin into ``output``.

    Args:
        input: Shape (N, C, H, W).
        rois: Image and corners, shape (K, 5).
        output: Shape (K, C, aligned_height, aligned_width).
        argmax_y: Receives y of the largest samples, shaped as ``output``; empty for the mean.
        argmax_x: x of them.
        aligned_height: Bins of a RoI from top to bottom.
        aligned_width: Bins from left to right.
        spatial_scale: Size of the features over the size of the image.
        sampling_ratio: Samples of a bin in each direction; 0: one for each pixel.
        pool_mode: 0 takes the largest, 1 the mean.
        aligned: Whether pixels lie half a pixel from the corner.
    """
    features = at_least_float32(input)
    rois = rois.to(features.dtype)
    if pool_mode != _MAX:
        size = spatial_scale, aligned_height, aligned_width, sampling_ratio, aligned
        output.copy_(torch.ops.torchvision.roi_align(features, rois, *size))
        return
    boxes = rois[:, 1:] * spatial_scale - 0.5 * aligned
    for number, image in enumerate(rois[:, 0].long()):
        targets = output[number], argmax_y[number], argmax_x[number]
        _max_of_bins(features[image], boxes[number], *targets, sampling_ratio, aligned)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the gradient of the features; see :func:`roi_align_forward`."""
    grad_output = at_least_float32(grad_output)
    rois = rois.to(grad_output.dtype)
    shape = tuple(grad_input.shape)
    if pool_mode != _MAX:
        backward = torch.ops.torchvision._roi_align_backward
        size = spatial_scale, aligned_height, aligned_width, *shape, sampling_ratio, aligned
        grad_input.copy_(backward(grad_output, rois, *size))
        return
    y = argmax_y.to(grad_output.dtype)
    index, weight = _corners(y, argmax_x.to(grad_output.dtype), *shape[2:])
    weight = weight * (y != _NOWHERE)[..., None]
    channel = torch.arange(shape[1], device=rois.device)
    plane = rois[:, :1].long() * shape[1] + channel
    index = index + plane[:, :, None, None, None] * (shape[2] * shape[3])
    grad = grad_output.new_zeros(math.prod(shape))
    grad.index_add_(0, index.flatten(), (grad_output[..., None] * weight).flatten())
    grad_input.copy_(grad.view(shape))


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Write the largest value of each bin into ``output``, and its place into ``argmax``.

    Args:
        input: Shape (N, C, H, W).
        rois: Image and corners, shape (K, 5).
        output: Shape (K, C, pooled_height, pooled_width).
        argmax: Index in the image, shaped as ``output``, int32; -1 where a bin is empty.
        pooled_height: Bins of a RoI from top to bottom.
        pooled_width: Bins from left to right.
        spatial_scale: Size of the features over the size of the image.
    """
    features = at_least_float32(input)
    pool = torch.ops.torchvision.roi_pool
    size = spatial_scale, pooled_height, pooled_width
    values, places = pool(features, rois.to(features.dtype), *size)
    output.copy_(values)
    argmax.copy_(places)


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Write the gradient of the features; see :func:`roi_pool_forward`."""
    grad_output = at_least_float32(grad_output)
    backward = torch.ops.torchvision._roi_pool_backward
    size = spatial_scale, pooled_height, pooled_width, *grad_input.shape
    grad_input.copy_(backward(grad_output, rois.to(grad_output.dtype), argmax, *size))
