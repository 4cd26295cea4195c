"""The operators of mmrank: gradients, float types, strides, empty inputs, equality."""

import pytest
import torch

pytest.importorskip('mmcv', reason='the operators of mmcv need mmcv')

import operator_cases as cases
from mmcv import ops

from mmrank.mmcv_ops import compiled_extension, extension

TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def ours():
    with cases.operators_of(extension):
        yield


@pytest.mark.parametrize('name', cases.DIFFERENTIABLE)
def test_gradients_are_those_of_the_output(name):
    inputs, call = cases.DIFFERENTIABLE[name](torch.float64)
    inputs = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


@cases.needs_compiled
@pytest.mark.parametrize('dtype', TOLERANCES)
@pytest.mark.parametrize('name', [*cases.COMPILED_ON_A_CPU, *cases.AT_REST])
def test_outputs_and_gradients_equal_the_compiled_ones(name, dtype):
    case = {**cases.DIFFERENTIABLE, **cases.AT_REST}[name]
    found = cases.run(case, dtype)
    with cases.operators_of(compiled_extension()):
        wanted = cases.run(case, dtype)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        scale = max(1.0, want.abs().max().item()) if want.numel() else 1
        torch.testing.assert_close(got, want, rtol=0, atol=TOLERANCES[dtype] * scale)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('name', cases.DIFFERENTIABLE)
def test_half_precision_keeps_its_type_and_is_near_float32(name, dtype):
    # RoIs and locations move by rounding: the bound is that of the inputs.
    inputs, call = cases.DIFFERENTIABLE[name](dtype)
    found = call(*inputs)
    assert found.dtype == dtype
    with torch.no_grad():
        _, call = cases.DIFFERENTIABLE[name](torch.float32)
        wanted = call(*(x.float() for x in inputs))
    assert (found.float() - wanted).abs().median() < 0.05
    run = cases.run(cases.DIFFERENTIABLE[name], dtype)
    assert all(x.isfinite().all() for x in run)


@pytest.mark.parametrize('name', cases.EMPTY)
def test_empty_inputs_give_empty_outputs_and_gradients_of_zero(name):
    output, *grads = cases.run(cases.EMPTY[name], torch.float32)
    assert output.numel() == 0
    assert all((x == 0).all() for x in grads)


def test_offsets_of_zero_have_no_gradient_before_the_image():
    offset = torch.zeros(1, 18, 4, 5, requires_grad=True)
    ops.deform_conv2d(torch.ones(1, 1, 4, 5), offset, torch.ones(1, 1, 3, 3), 1, 1).sum().backward()
    y, x = offset.grad.view(3, 3, 2, 4, 5).unbind(2)
    assert not y[0, :, 0].any()  # the upper taps of the first row
    assert not x[:, 0, :, 0].any()
    assert (y[2, 1, 2] == -1).all()  # the lower taps of the last but one row lie on the last


def test_largest_sample_of_roi_align_is_refused():
    _, call = cases.roi_align(torch.float32, pool_mode='max')
    with pytest.raises(NotImplementedError, match="pool_mode='max'.*--compile-mmcv"):
        call(torch.zeros(2, 2, 15, 18))


def test_sigmoid_focal_loss_equals_its_definition():
    logits = cases.normal(6, 4, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, 4, 1])  # 4 is background
    own = torch.nn.functional.one_hot(target, 5)[:, :4].double()
    p = logits.sigmoid()
    cross = torch.nn.functional.binary_cross_entropy(p, own, reduction='none')
    wanted = (own * 0.25 + (1 - own) * 0.75) * (own - p).abs() ** 2 * cross
    found = ops.sigmoid_focal_loss(logits, target, 2.0, 0.25, None, 'none')
    torch.testing.assert_close(found, wanted)


def test_attention_equals_that_of_mmcv_for_a_cpu():
    (value, places, weights), call = cases.attention(torch.float64)
    plain = ops.multi_scale_deform_attn.multi_scale_deformable_attn_pytorch
    wanted = plain(value, torch.tensor([[4, 5], [2, 3]]), places, weights)
    torch.testing.assert_close(call(value, places, weights), wanted, rtol=0, atol=1e-12)
