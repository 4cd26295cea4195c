"""Suppression and overlaps of boxes, equal to the compiled ones or to a loop in Python."""

import pytest
import torch

pytest.importorskip('mmcv', reason='the operators of mmcv need mmcv')

from mmcv import ops
from operator_cases import boxes, needs_compiled, operators_of

from mmrank.mmcv_ops import compiled_extension, extension


def random():
    return boxes(400, torch.float32)


def ties():
    """Whole pixels and few scores: equal overlaps and equal scores, some boxes without an area."""
    found, scores, classes = boxes(300, torch.float32, size=20)
    return found.round(), (scores * 4).round() / 4, classes


def empty():
    return boxes(0, torch.float32)


def one_place():
    found, scores, classes = boxes(40, torch.float32)
    return found[:1].expand(40, -1), scores, classes


INPUTS = random, ties, empty, one_place
CALLS = {
    **{
        f'nms-offset-{offset}-{threshold}': (
            lambda b, s, c, o=offset, t=threshold: ops.nms(b, s, t, offset=o)
        )
        for offset in (0, 1)
        for threshold in (0.2, 0.5, 0.6, 0.7)
    },
    'nms-score': lambda b, s, c: ops.nms(b, s, 0.5, score_threshold=0.3, max_num=7),
    'batched': lambda b, s, c: ops.batched_nms(b, s, c, dict(type='nms', iou_threshold=0.6)),
    **{
        f'soft-{method}-offset-{offset}': (
            lambda b, s, c, m=method, o=offset: ops.soft_nms(b, s, 0.3, 0.5, 0.05, m, o)
        )
        for method in ('naive', 'linear', 'gaussian')
        for offset in (0, 1)
    },
    'batched-soft': lambda b, s, c: ops.batched_nms(
        b, s, c, dict(type='soft_nms', iou_threshold=0.5, min_score=0.01)
    ),
    'overlaps': lambda b, s, c: [ops.bbox_overlaps(b[:50], b[20:90])],
    'overlaps-iof-offset': lambda b, s, c: [ops.bbox_overlaps(b[:50], b[:9], 'iof', offset=1)],
    'overlaps-aligned': lambda b, s, c: [ops.bbox_overlaps(b, b.flip(0), aligned=True)],
}


@needs_compiled
@pytest.mark.parametrize('given', INPUTS)
@pytest.mark.parametrize('name', CALLS)
def test_equals_the_compiled_one(name, given):
    if name.startswith('batched') and given is empty:
        pytest.skip('mmcv takes the maximum of no coordinate')
    with operators_of(extension):
        found = CALLS[name](*given())
    with operators_of(compiled_extension()):
        wanted = CALLS[name](*given())
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize('name', ['nms-offset-0-0.5', 'batched', 'soft-linear-offset-0'])
def test_other_float_types(name, dtype):
    given = boxes(60, torch.float16)
    with operators_of(extension):
        found = CALLS[name](given[0].to(dtype), given[1].to(dtype), given[2])
        wanted = CALLS[name](given[0].float(), given[1].float(), given[2])
    if dtype is not torch.bfloat16:  # which has not the digits of float16
        assert all(torch.equal(a, b) for a, b in zip(found[1:], wanted[1:], strict=True))
    assert found[0].dtype == dtype
