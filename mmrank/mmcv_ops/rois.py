"""RoIAlign and RoIPool."""

import torch
import torchvision  # noqa: F401  # registers torch.ops.torchvision
from torch import Tensor

from mmrank.tensors import at_least_float32

from .refusal import refuse_operator

_MEAN = 1


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
    """Write the mean of the samples of each bin into ``output``.

    Args:
        input: Shape (N, C, H, W).
        rois: Image and corners, shape (K, 5).
        output: Shape (K, C, aligned_height, aligned_width).
        argmax_y: Not needed.
        argmax_x: Not needed.
        aligned_height: Bins of a RoI from top to bottom.
        aligned_width: Bins from left to right.
        spatial_scale: Size of the features over the size of the image.
        sampling_ratio: Samples of a bin in each direction; 0: one for each pixel.
        pool_mode: 1; 0, the largest sample, is refused.
        aligned: Whether pixels lie half a pixel from the corner.
    """
    if pool_mode != _MEAN:
        refuse_operator("roi_align with pool_mode='max'")
    features = at_least_float32(input)
    size = spatial_scale, aligned_height, aligned_width, sampling_ratio, aligned
    output.copy_(torch.ops.torchvision.roi_align(features, rois.to(features.dtype), *size))


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
    backward = torch.ops.torchvision._roi_align_backward
    size = spatial_scale, aligned_height, aligned_width
    grad = backward(grad_output, rois, *size, *grad_input.shape, sampling_ratio, aligned)
    grad_input.copy_(grad)


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
