"""RoIAlign."""

import torch
import torchvision  # noqa: F401  # registers torch.ops.torchvision
from torch import Tensor

from mmrank.tensors import at_least_float32

from . import refuse_operator

_MEAN = 1


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    *argmax: Tensor,
    spatial_scale: float,
    aligned_height: int,
    aligned_width: int,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the mean of the samples of each bin into ``output``."""
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
