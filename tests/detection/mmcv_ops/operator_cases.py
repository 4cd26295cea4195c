"""Calls of ``mmcv.ops``: functions of a float type that return inputs and a call of them."""

import importlib
import sys
from contextlib import ExitStack, contextmanager
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


def roi_align(number=12, **settings):
    def case(dtype):
        x = normal(2, 2, 15, 18, dtype=dtype)
        layer = ops.RoIAlign((4, 3), 0.25, **settings)
        return [x], lambda x: layer(x, rois(number, dtype))

    return case


def deformable(
    version, groups=1, deform_groups=1, batch=2, bias=True, stride=2, finer=False, spread=1.7
):
    """Offsets of several pixels, some beyond the image; ``finer`` ones have the input's size."""
    taps, channels = 9 * deform_groups, 4

    def case(dtype):
        x = normal(batch, channels, 9, 8, dtype=dtype)
        size = (5, 4) if stride == 2 and not finer else (9, 8)
        offset = spread * normal(batch, 2 * taps, *size, dtype=dtype, seed=1)
        mask = normal(batch, taps, *size, dtype=dtype, seed=2).sigmoid()
        weight = normal(6, channels // groups, 3, 3, dtype=dtype, seed=3)
        settings = stride, 1, 1, groups, deform_groups
        if version == 1:
            return [x, offset, weight], lambda *args: ops.deform_conv2d(*args, *settings)
        inputs = [x, offset, mask, weight]
        if bias:
            inputs.append(normal(6, dtype=dtype, seed=4))
            return inputs, lambda *args: ops.modulated_deform_conv2d(*args, *settings)
        return inputs, lambda *args: ops.modulated_deform_conv2d(*args, None, *settings)

    return case


def focal(number=8, weighted=False):
    def case(dtype):
        logits = 3 * normal(number, 5, dtype=dtype)
        # There is a background class without a logit.
        target = torch.arange(number) % 6
        weight = torch.arange(1.0, 6, dtype=dtype) if weighted else None
        loss = ops.sigmoid_focal_loss
        return [logits], lambda x: loss(x, target, 2.0, 0.25, weight, 'none')

    return case


def attention(batch=2, queries=5):
    def case(dtype):
        shapes = torch.tensor([[4, 5], [2, 3]])
        start = torch.tensor([0, 20])
        value = normal(batch, 26, 2, 3, dtype=dtype)
        places = torch.sigmoid(2 * normal(batch, queries, 2, 2, 3, 2, dtype=dtype, seed=1))
        places = places * 1.4 - 0.2  # some lie outside
        weights = normal(batch, queries, 2, 2, 3, dtype=dtype, seed=2)
        apply = MultiScaleDeformableAttnFunction.apply
        return [value, places, weights], lambda v, p, w: apply(v, shapes, start, p, w, 64)

    return case


#: With a gradient. mmcv has compiled code for a CPU for the first three kinds only.
DIFFERENTIABLE = {
    'roi_align': roi_align(),
    'roi_align-ratio-2-legacy': roi_align(sampling_ratio=2, aligned=False),
    'deform_conv': deformable(1),
    'deform_conv-groups': deformable(1, groups=2, deform_groups=2, stride=1),
    'modulated_deform_conv': deformable(2),
    'modulated_deform_conv-groups': deformable(2, groups=2, deform_groups=2, stride=1),
    'modulated_deform_conv-no-bias': deformable(2, bias=False),
    'modulated_deform_conv-finer-offsets': deformable(2, deform_groups=2, finer=True),
    'sigmoid_focal_loss': focal(),
    'sigmoid_focal_loss-weights': focal(weighted=True),
    'ms_deform_attn': attention(),
}
#: A new layer has offsets of zero. Its samples lie on pixels, where slopes of both sides differ.
AT_REST = {
    'deform_conv-at-rest': deformable(1, spread=0),
    'modulated_deform_conv-at-rest': deformable(2, spread=0, groups=2, deform_groups=2),
}
EMPTY = {
    'roi_align': roi_align(0),
    'sigmoid_focal_loss': focal(0),
    'ms_deform_attn-queries': attention(queries=0),
    'ms_deform_attn-batch': attention(batch=0),
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
