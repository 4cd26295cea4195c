"""Deformable convolution by torchvision's kernels, and attention by ``grid_sample``."""

import torch
import torchvision  # noqa: F401  # registers torch.ops.torchvision
from torch import Tensor
from torch.nn.functional import grid_sample

from mmrank.tensors import at_least_float32

#: What mmcv calls the settings, in the order in which torchvision's kernels take them.
_VERSION_1 = ('dH', 'dW', 'padH', 'padW', 'dilationH', 'dilationW', 'group', 'deformable_group')
_SIDES_2 = ('stride_h', 'stride_w', 'pad_h', 'pad_w', 'dilation_h', 'dilation_w')
_VERSION_2 = (*_SIDES_2, 'group', 'deformable_group')


def _arguments(
    weight: Tensor,
    offset: Tensor,
    settings: dict[str, int],
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[list, tuple]:
    """Return weight, offset, mask and bias, and settings, as torchvision's kernels take them."""
    names = _VERSION_1 if mask is None else _VERSION_2
    ordered = *(settings[name] for name in names), mask is not None
    mask = offset.new_zeros(len(offset), 1) if mask is None else mask
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return [at_least_float32(x) for x in (weight, offset, mask, bias)], ordered


def _convolve(output: Tensor, input: Tensor, tensors: list, settings: tuple) -> None:
    convolve = torch.ops.torchvision.deform_conv2d
    result = convolve(at_least_float32(input), *tensors, *settings)
    output.copy_(result.view_as(output))


def _gradients(grad_output: Tensor, input: Tensor, tensors: list, settings: tuple) -> tuple:
    """Return the gradients of input, weight, offset, mask and bias."""
    backward = torch.ops.torchvision._deform_conv2d_backward
    grad_output = at_least_float32(grad_output).contiguous()
    grads = backward(grad_output, at_least_float32(input), *tensors, *settings)
    weight, offset = tensors[:2]
    # y and x of all samples, (N, deformable groups, taps, 2, height, width).
    axes = []
    for axis in (0, 1):
        places = torch.arange(offset.shape[axis + 2], device=offset.device) * settings[axis]
        taps = torch.arange(weight.shape[axis + 2], device=offset.device) * settings[4 + axis]
        axes.append(taps[:, None] + places - settings[2 + axis])
    y = axes[0][:, None, :, None]
    x = axes[1][None, :, None, :]
    grid = torch.stack(torch.broadcast_tensors(y, x), dim=2).flatten(0, 1)
    locations = offset.reshape(len(offset), settings[7], *grid.shape) + grid
    # One pixel before the image, where the taps of a new layer with padding lie, mmcv has no
    # gradient, and torchvision the gradient of a step inwards.
    grads[2].masked_fill_((locations <= -1).view_as(offset), 0)
    return grads


def _of_size(tensor: Tensor, output: Tensor) -> Tensor:
    """Return offsets or masks in the height and width of the output.

    mmcv reads the first values of each image as if they had them. DyHead trains that way: it gives
    a coarse level the offsets of a finer one.
    """
    size = output.shape[-2:]
    if tensor.shape[-2:] == size or tensor.shape[-2:].numel() < size.numel():
        return tensor
    values = tensor.flatten(1)[:, : tensor.shape[1] * size.numel()]
    return values.reshape(len(tensor), -1, *size)


def _write(target: Tensor, grad: Tensor) -> None:
    """Write a gradient; values that :func:`_of_size` leaves out have none."""
    if target.shape == grad.shape:
        target.copy_(grad)
        return
    values = target.new_zeros(target.shape).flatten(1)
    values[:, : grad.shape[1:].numel()] = grad.flatten(1)
    target.copy_(values.view(target.shape))


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, *_: Tensor, **settings: int
) -> None:
    """Write the convolution, with (N, 2 * groups * taps, H, W) offsets y and x of the taps."""
    _convolve(output, input, *_arguments(weight, offset, settings))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    *_: Tensor,
    **settings: int,
) -> None:
    """Write the gradients of input and offset; see :func:`deform_conv_forward`."""
    grads = _gradients(grad_output, input, *_arguments(weight, offset, settings))
    grad_input.copy_(grads[0])
    grad_offset.copy_(grads[2])


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    *_: Tensor,
    scale: float,
    **settings: int,
) -> None:
    """Add the gradient of the weight, times ``scale``; see :func:`deform_conv_forward`."""
    weight = torch.zeros_like(grad_weight)
    grads = _gradients(grad_output, input, *_arguments(weight, offset, settings))
    grad_weight.add_(grads[1].to(grad_weight), alpha=scale)


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    *_: Tensor,
    with_bias: bool,
    **settings: int,
) -> None:
    """Write the convolution whose taps have offsets and a factor each, the ``mask``."""
    offset = _of_size(offset, output)
    mask = _of_size(mask, output)
    arguments = _arguments(weight, offset, settings, mask, bias if with_bias else None)
    _convolve(output, input, *arguments)


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    with_bias: bool,
    **settings: int,
) -> None:
    """Write all gradients; see :func:`modulated_deform_conv_forward`."""
    offset = _of_size(offset, grad_output)
    mask = _of_size(mask, grad_output)
    arguments = _arguments(weight, offset, settings, mask, bias if with_bias else None)
    grads = _gradients(grad_output, input, *arguments)
    targets = [grad_input, grad_weight, grad_offset, grad_mask]
    if with_bias:
        targets.append(grad_bias)
    for target, grad in zip(targets, grads):
        _write(target, grad)


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
