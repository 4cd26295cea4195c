"""Multi-scale deformable attention by ``grid_sample``."""

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from mmrank.tensors import at_least_float32


def _attend(value: Tensor, shapes: list, locations: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of samples of all levels; see :func:`ms_deform_attn_forward`."""
    batch, _, heads, width = value.shape
    queries = locations.shape[1]
    levels = value.split([height * length for height, length in shapes], dim=1)
    output = value.new_zeros(batch * heads, width, queries)
    for level, (height, length) in enumerate(shapes):
        image = levels[level].permute(0, 2, 3, 1).reshape(batch * heads, width, height, length)
        grid = (2 * locations[:, :, :, level] - 1).transpose(1, 2).flatten(0, 1)
        samples = grid_sample(image, grid, align_corners=False)
        weight = weights[:, :, :, level].transpose(1, 2).flatten(0, 1)
        output = output + (samples * weight[:, None]).sum(dim=-1)
    return output.view(batch, heads * width, queries).transpose(1, 2)


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """Sample the levels at the locations and sum by the weights.

    Returns:
        Shape (batch, queries, heads * width).
    """
    tensors = (at_least_float32(x) for x in (value, sampling_locations, attention_weights))
    value32, locations, weights = tensors
    output = _attend(value32, value_spatial_shapes.tolist(), locations, weights)
    return output.to(value.dtype).contiguous()


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    """Write the gradients of value, locations and weights; see :func:`ms_deform_attn_forward`."""
    tensors = (value, sampling_locations, attention_weights)
    inputs = [at_least_float32(x).detach().requires_grad_() for x in tensors]
    with torch.enable_grad():
        output = _attend(inputs[0], value_spatial_shapes.tolist(), *inputs[1:])
    grads = torch.autograd.grad(output, inputs, grad_output.to(output.dtype))
    for target, grad in zip((grad_value, grad_sampling_loc, grad_attn_weight), grads, strict=True):
        target.copy_(grad)
