"""Calls of ``mmcv.ops``: functions of a float type that return inputs and a call of them."""

import importlib
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

import pytest
import torch
from mmcv import ops
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction

from mmrank.mmcv_ops import compiled_extension

needs_compiled = pytest.mark.skipif(
    compiled_extension() is None, reason='mmcv is not compiled here: nothing to compare with'
)


@contextmanager
def operators_of(extension):
    """Let all of ``mmcv.ops`` call the operators of one module, to compare them with others."""
    importlib.import_module('mmcv.ops')
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
                stack.enter_context(patch.object(module, 'ext_module', extension))
        yield


def boxes(number, dtype, seed=0, size=60):
    """Return random corners (N, 4), scores and one of five classes each."""
    draw = torch.Generator().manual_seed(seed)
    corner = torch.rand(number, 2, generator=draw) * size
    sides = torch.rand(number, 2, generator=draw) * size / 3 + 1
    scores = torch.rand(number, generator=draw)
    classes = torch.randint(5, (number,), generator=draw)
    return torch.cat([corner, corner + sides], 1).to(dtype), scores.to(dtype), classes


def normal(*shape, dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)


def rois(number, dtype, images=2):
    """Return RoIs of images of 60 x 60; the last ones are a point, and beyond the border."""
    found = boxes(number, dtype)[0]
    if number > 3:
        found[-1, 2:] = found[-1, :2]
        found[-2] += 50
    image = torch.arange(number) % images
    return torch.cat([image[:, None].to(dtype), found], 1)


def roi_align(dtype, number=12, **settings):
    x = normal(2, 2, 15, 18, dtype=dtype)
    layer = ops.RoIAlign((4, 3), 0.25, **settings)
    return [x], lambda x: layer(x, rois(number, dtype))


def deformable(dtype, groups=1, deform_groups=1, stride=2, spread=1.7):
    """Offsets of several pixels, some beyond the image."""
    size = (5, 4) if stride == 2 else (9, 8)
    x = normal(2, 4, 9, 8, dtype=dtype)
    offset = spread * normal(2, 18 * deform_groups, *size, dtype=dtype, seed=1)
    weight = normal(6, 4 // groups, 3, 3, dtype=dtype, seed=3)
    settings = stride, 1, 1, groups, deform_groups
    return [x, offset, weight], lambda *args: ops.deform_conv2d(*args, *settings)


def modulated(dtype, groups=1, deform_groups=1, bias=True, stride=2, finer=False, spread=1.7):
    """The same with a mask; ``finer`` offsets have the size of the input."""
    size = (5, 4) if stride == 2 and not finer else (9, 8)
    (x, _, weight), _ = deformable(dtype, groups, deform_groups)
    offset = spread * normal(2, 18 * deform_groups, *size, dtype=dtype, seed=1)
    mask = normal(2, 9 * deform_groups, *size, dtype=dtype, seed=2).sigmoid()
    settings = stride, 1, 1, groups, deform_groups
    inputs = [x, offset, mask, weight]
    if bias:
        inputs.append(normal(6, dtype=dtype, seed=4))
        return inputs, lambda *args: ops.modulated_deform_conv2d(*args, *settings)
    return inputs, lambda *args: ops.modulated_deform_conv2d(*args, None, *settings)


def focal(dtype, number=8, weighted=False):
    logits = 3 * normal(number, 5, dtype=dtype)
    # There is a background class without a logit.
    target = torch.arange(number) % 6
    weight = torch.arange(1.0, 6, dtype=dtype) if weighted else None
    return [logits], lambda x: ops.sigmoid_focal_loss(x, target, 2.0, 0.25, weight, 'none')


def attention(dtype, batch=2, queries=5):
    shapes = torch.tensor([[4, 5], [2, 3]])
    start = torch.tensor([0, 20])
    value = normal(batch, 26, 2, 3, dtype=dtype)
    places = torch.sigmoid(2 * normal(batch, queries, 2, 2, 3, 2, dtype=dtype, seed=1))
    places = places * 1.4 - 0.2  # some lie outside
    weights = normal(batch, queries, 2, 2, 3, dtype=dtype, seed=2)
    apply = MultiScaleDeformableAttnFunction.apply
    return [value, places, weights], lambda v, p, w: apply(v, shapes, start, p, w, 64)


#: With a gradient. mmcv has compiled code for a CPU for the first three kinds only.
DIFFERENTIABLE = {
    'roi_align': roi_align,
    'roi_align-ratio-2-legacy': partial(roi_align, sampling_ratio=2, aligned=False),
    'deform_conv': deformable,
    'deform_conv-groups': partial(deformable, groups=2, deform_groups=2, stride=1),
    'modulated_deform_conv': modulated,
    'modulated_deform_conv-groups': partial(modulated, groups=2, deform_groups=2, stride=1),
    'modulated_deform_conv-no-bias': partial(modulated, bias=False),
    'modulated_deform_conv-finer-offsets': partial(modulated, deform_groups=2, finer=True),
    'sigmoid_focal_loss': focal,
    'sigmoid_focal_loss-weights': partial(focal, weighted=True),
    'ms_deform_attn': attention,
}
#: A new layer has offsets of zero. Its samples lie on pixels, where slopes of both sides differ.
AT_REST = {
    'deform_conv-at-rest': partial(deformable, spread=0),
    'modulated_deform_conv-at-rest': partial(modulated, spread=0, groups=2, deform_groups=2),
}
EMPTY = {
    'roi_align': partial(roi_align, number=0),
    'sigmoid_focal_loss': partial(focal, number=0),
    'ms_deform_attn-queries': partial(attention, queries=0),
    'ms_deform_attn-batch': partial(attention, batch=0),
}
COMPILED_ON_A_CPU = [
    x for x in DIFFERENTIABLE if x.startswith(('roi_align', 'deform', 'modulated'))
]


def run(case, dtype):
    """Return the output and the gradients of a case, all as one list."""
    inputs, call = case(dtype)
    inputs = [x.requires_grad_() for x in inputs]
    output = call(*inputs)
    slope = torch.linspace(-1, 1, output.numel()).view_as(output).to(output)
    (output * slope).sum().backward()
    return [output.detach(), *(x.grad for x in inputs)]
