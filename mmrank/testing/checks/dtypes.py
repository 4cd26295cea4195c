"""Checks of the dtypes of labels and scores, of mixed precision."""

import torch
from torch import Tensor

from mmrank.testing.check import check, is_a_function, require, require_finite, require_same
from mmrank.testing.subject import Subject

SMALL = (torch.uint8, torch.int8, torch.int16, torch.int32)


def _is_integer(x: Tensor) -> bool:
    return not x.is_floating_point() and x.dtype != torch.bool


def _has_no_labels(subject: Subject) -> str:
    fixed = subject.batch().fixed
    return '' if any(map(_is_integer, fixed)) else f'{subject.call.name} has no labels of integers'


@check(refusals=(Exception,), excuse=_has_no_labels)
def _label_dtypes(subject: Subject) -> None:
    """Labels of any integer dtype are the numbers that they are, or are refused.

    Data sets keep them in uint8. ``-labels`` and ``1 - 2 * labels`` are other numbers there, and
    uint8 as an index was a mask once.
    """
    batch = subject.batch()
    value, gradients = batch.gradients(subject.build())
    refused = []
    for dtype in SMALL:
        labels = [x.to(dtype) if _is_integer(x) else x for x in batch.fixed]
        try:
            found = batch.with_fixed(labels).gradients(subject.build())
        except Exception as error:
            refused.append(error)
            continue
        require_same(found[0], value, f'the value of labels in {dtype}')
        require_same(found[1], gradients, f'a gradient of labels in {dtype}')
    if len(refused) == len(SMALL):
        raise refused[0]


@check()
def _float32(subject: Subject) -> None:
    """In float32 the loss is what it is in float64.

    A small epsilon vanishes in float32, and a difference of large sums loses its digits.
    """
    batch = subject.batch()
    value, gradients = batch.gradients(subject.build())
    found = batch.cast(torch.float32).gradients(subject.build(torch.float32))
    require_same(found[0], value, 'the value in float32', rtol=1e-3, atol=1e-3)
    scale = max(float(x.abs().max()) for x in gradients)
    require_same(found[1], gradients, 'a gradient in float32', rtol=1e-2, atol=1e-3 * scale + 1e-6)


def _half(subject: Subject, dtype: torch.dtype, tolerance: float) -> None:
    half = subject.batch().cast(dtype)
    value = half.cast(torch.float32).of(subject.build(torch.float32))
    found, gradients = half.gradients(subject.build(torch.float32))
    require_finite(found, gradients)
    require_same(found, value, f'the value in {dtype}', rtol=tolerance, atol=tolerance)


@check(refusals=(Exception,))
def _float16(subject: Subject) -> None:
    """Scores in float16 have the loss of the same numbers in float32, or are refused.

    exp(12) is infinite in float16, and 1e-8 is zero: what is added as an epsilon is not there.
    """
    _half(subject, torch.float16, 0.02)


@check(refusals=(Exception,))
def _bfloat16(subject: Subject) -> None:
    """Scores in bfloat16 have the loss of the same numbers in float32, or are refused.

    It has three digits: sums of thousands of terms stand still, and 1 - 0.999 is 0 or 0.004.
    """
    _half(subject, torch.bfloat16, 0.05)


@check()
def _autocast(subject: Subject) -> None:
    """Under autocast to bfloat16 the loss is near what it is without.

    Autocast turns a matrix product of the loss into bfloat16; a cosine of 0.996 is then 1, and the
    distance of two embeddings a zero or a NaN.
    """
    batch = subject.batch().cast(torch.float32)
    value = batch.of(subject.build(torch.float32))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        found = batch.gradients(subject.build(torch.float32))
    require_finite(*found)
    require_same(found[0], value, 'the value under autocast', rtol=0.05, atol=0.05)


@check(is_usual=False)
def _computes_in_float32(subject: Subject) -> None:
    """Under autocast, a loss of scores in half precision is computed in float32.

    Stricter than the checks before: the value is right to three digits whatever autocast does, has
    the dtype float32, and is the same in autocast to the other half dtype.
    """
    for dtype in (torch.float16, torch.bfloat16):
        half = subject.batch().mapped(lambda x, dtype=dtype: x.to(dtype))
        with torch.autocast('cpu', dtype=dtype):
            value, gradients = half.gradients(subject.build(torch.float32))
        require(value.dtype == torch.float32, f'the value is of {value.dtype}')
        require(all(x.dtype == dtype for x in gradients), f'a gradient is not of {dtype}')
        require_finite(value, gradients)
        exact = half.mapped(Tensor.double).of(subject.build())
        require_same(value, exact, f'the value of {dtype}', rtol=1e-3, atol=1e-3)
    half = subject.batch().mapped(Tensor.half)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        value = half.of(subject.build(torch.float32))
    require_same(
        value, half.of(subject.build(torch.float32)), 'float16 under bfloat16', rtol=0, atol=0
    )


@check(refusals=(Exception,), excuse=is_a_function)
def _moved_to_another_dtype(subject: Subject) -> None:
    """A loss that has moved to another dtype with its model still has a finite value.

    ``model.to(torch.bfloat16)`` takes the buffers of its losses with it: counts of samples, running
    means.
    """
    batch = subject.batch(seed=2)
    for dtype in (torch.float64, torch.bfloat16):
        require_finite(*batch.gradients(subject.trained().to(dtype)))
