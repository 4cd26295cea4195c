"""CARAFE, and convolution at some positions only."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.tensors import at_least_float32


class _Taps:
    """The windows of CARAFE: features and masks as one product per tap.

    Args:
        features: Shape (N, C, H, W).
        masks: Weights of each tap at each output, shape (N, groups * taps, H * scale, W * scale).
        kernel_size: Taps a side, odd.
        group_size: Groups of channels, each with weights of its own.
        scale_factor: Outputs a side for each input.
    """

    def __init__(
        self, features: Tensor, masks: Tensor, kernel_size: int, group_size: int, scale_factor: int
    ) -> None:
        number, channels, height, width = features.shape
        self.size = kernel_size
        self.border = kernel_size // 2
        # One cell for each input, its outputs in the dimensions next to it.
        self.inputs = number, group_size, channels // group_size, height, width
        self.outputs = *self.inputs[:4], scale_factor, width, scale_factor
        self.masks = at_least_float32(masks).reshape(
            number, group_size, kernel_size**2, height, scale_factor, width, scale_factor
        )
        self.features = self.padded(at_least_float32(features).reshape(self.inputs))

    def padded(self, tensor: Tensor) -> Tensor:
        """Return a tensor with zeros around each image."""
        return pad(tensor, [self.border] * 4)

    def window(self, tensor: Tensor, tap: int) -> Tensor:
        """Return what a tap sees of a padded tensor."""
        y, x = divmod(tap, self.size)
        return tensor[..., y : y + self.inputs[3], x : x + self.inputs[4]]

    def forward(self) -> Tensor:
        """Return the outputs, shape (N, groups, channels, H, scale, W, scale)."""
        output = 0
        for tap in range(self.size**2):
            seen = self.window(self.features, tap)[..., :, None, :, None]
            output = output + seen * self.masks[:, :, tap, None]
        return output

    def backward(self, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of features and masks."""
        grad_output = at_least_float32(grad_output).reshape(self.outputs)
        grad_features = torch.zeros_like(self.features)
        grad_masks = torch.zeros_like(self.masks)
        for tap in range(self.size**2):
            seen = self.window(self.features, tap)[..., :, None, :, None]
            grad_masks[:, :, tap] = (grad_output * seen).sum(dim=2)
            shares = (grad_output * self.masks[:, :, tap, None]).sum(dim=(4, 6))
            self.window(grad_features, tap).add_(shares)
        inside = slice(self.border, -self.border or None)
        return grad_features[..., inside, inside], grad_masks


def carafe_naive_forward(
    features: Tensor,
    masks: Tensor,
    output: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    """Write features, reassembled on a finer grid, into ``output``.

    Args:
        features: Shape (N, C, H, W).
        masks: Shape (N, group_size * kernel_size^2, H * scale_factor, W * scale_factor).
        output: Shape (N, C, H * scale_factor, W * scale_factor).
        kernel_size: Side of the window around each input, odd.
        group_size: Groups of channels, each with masks of its own.
        scale_factor: Outputs a side for each input.
    """
    taps = _Taps(features, masks, kernel_size, group_size, scale_factor)
    output.copy_(taps.forward().reshape(output.shape))


def carafe_naive_backward(
    grad_output: Tensor,
    features: Tensor,
    masks: Tensor,
    grad_input: Tensor,
    grad_masks: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    """Write the gradients of features and masks; see :func:`carafe_naive_forward`."""
    taps = _Taps(features, masks, kernel_size, group_size, scale_factor)
    of_features, of_masks = taps.backward(grad_output)
    grad_input.copy_(of_features.reshape(grad_input.shape))
    grad_masks.copy_(of_masks.reshape(grad_masks.shape))


def carafe_forward(
    features: Tensor,
    masks: Tensor,
    rfeatures: Tensor,
    routput: Tensor,
    rmasks: Tensor,
    output: Tensor,
    **settings: int,
) -> None:
    """Write as :func:`carafe_naive_forward`; ``rfeatures`` keeps the features for the gradient."""
    rfeatures.copy_(features)
    carafe_naive_forward(features, masks, output, **settings)


def carafe_backward(
    grad_output: Tensor,
    rfeatures: Tensor,
    masks: Tensor,
    rgrad_output: Tensor,
    rgrad_input_hs: Tensor,
    rgrad_input: Tensor,
    rgrad_masks: Tensor,
    grad_input: Tensor,
    grad_masks: Tensor,
    **settings: int,
) -> None:
    """Write the gradients of features and masks; see :func:`carafe_forward`."""
    carafe_naive_backward(grad_output, rfeatures, masks, grad_input, grad_masks, **settings)


def masked_im2col_forward(
    features: Tensor,
    mask_h_idx: Tensor,
    mask_w_idx: Tensor,
    data_col: Tensor,
    kernel_h: int,
    kernel_w: int,
    pad_h: int,
    pad_w: int,
) -> None:
    """Write the windows of some positions into ``data_col``.

    Args:
        features: Shape (1, C, H, W).
        mask_h_idx: Rows of the positions, shape (K,).
        mask_w_idx: Columns of the positions, shape (K,).
        data_col: Shape (C * kernel_h * kernel_w, K).
        kernel_h: Height of a window.
        kernel_w: Width of a window.
        pad_h: Zeros above and below.
        pad_w: Zeros on both sides.
    """
    padded = pad(features[0], [pad_w, pad_w, pad_h, pad_h])
    rows = mask_h_idx + torch.arange(kernel_h, device=mask_h_idx.device)[:, None]
    columns = mask_w_idx + torch.arange(kernel_w, device=mask_w_idx.device)[:, None]
    data_col.copy_(padded[:, rows[:, None], columns].reshape(data_col.shape))


def masked_col2im_forward(
    col: Tensor,
    mask_h_idx: Tensor,
    mask_w_idx: Tensor,
    im: Tensor,
    height: int,
    width: int,
    channels: int,
) -> None:
    """Write columns, shape (channels, K), to their positions in ``im`` (1, channels, H, W)."""
    im[0, :, mask_h_idx, mask_w_idx] = col.to(im.dtype)
