"""What ``mmcv._ext`` holds where mmcv is not compiled.

Each operator has the arguments of the compiled one, which writes most results into tensors that it
is given. An operator that is not here refuses when it is called, not when mmcv asks for it.
"""

# ruff: noqa: F401  # mmcv asks for the names

from collections.abc import Callable
from functools import partial

from mmrank.errors import UserImportError

try:
    import torchvision as _torchvision
except ImportError as error:
    raise UserImportError(
        "mmcv has no compiled operators here, and mmrank's take its place with torchvision, which "
        f'does not import ({error}). Fix: install the torchvision of this torch, or mmcv with '
        'compiled operators.'
    ) from error

from mmrank.mmcv_ops import refuse_operator
from mmrank.mmcv_ops.boxes import bbox_overlaps, nms, roi_align_backward, roi_align_forward, softnms
from mmrank.mmcv_ops.deformable import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
    ms_deform_attn_backward,
    ms_deform_attn_forward,
)
from mmrank.mmcv_ops.focal_losses import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward


def get_compiler_version() -> str:
    """Return what mmcv prints for its compiler."""
    return 'none: mmrank.mmcv_ops on torch and torchvision'


def get_compiling_cuda_version() -> str:
    """Return what mmcv prints for the CUDA it was compiled with."""
    return 'not available'


def __getattr__(name: str) -> Callable:
    """An operator that is not here: a function that refuses."""
    if name.startswith('__'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return partial(refuse_operator, name)
