"""Suppression and overlaps of boxes, equal to the compiled ones or to a loop in Python."""

import math

import pytest
import torch

pytest.importorskip('mmcv', reason='the operators of mmcv need mmcv')

from mmcv import ops
from operator_cases import boxes, needs_compiled, operators_of

from lib.common.mmcv_operators import compiled_extension
from mmrank.mmcv_ops import extension


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
    'match': lambda b, s, c: ops.nms_match(torch.cat([b, s[:, None]], 1), 0.5),
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


@pytest.fixture
def ours():
    with operators_of(extension):
        yield


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize('name', ['nms-offset-0-0.5', 'batched', 'soft-linear-offset-0', 'match'])
def test_other_float_types(name, dtype, ours):
    given = boxes(60, torch.float16)
    found = CALLS[name](given[0].to(dtype), given[1].to(dtype), given[2])
    wanted = CALLS[name](given[0].float(), given[1].float(), given[2])
    indices = [found, wanted] if name == 'match' else [found[1:], wanted[1:]]
    if dtype is not torch.bfloat16:  # which has not the digits of float16
        assert all(torch.equal(a, b) for a, b in zip(*indices, strict=True))
    assert name == 'match' or found[0].dtype == dtype


def rotated(number, seed=0):
    draw = torch.Generator().manual_seed(seed)
    centre = torch.rand(number, 2, generator=draw) * 30
    sides = torch.rand(number, 2, generator=draw) * 20 + 1
    angle = (torch.rand(number, 1, generator=draw) - 0.5) * math.pi
    return torch.cat([centre, sides, angle], 1), torch.rand(number, generator=draw)


def test_rotated_overlaps_equal_those_along_the_axes(ours):
    corners = boxes(40, torch.float64)[0]
    centre, size = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    upright = torch.cat([centre, size, torch.zeros(40, 1)], 1)
    quarter = torch.full((40, 1), math.pi / 2, dtype=torch.float64)
    turned = torch.cat([centre, size.flip(1), quarter], 1)
    for mode in ('iou', 'iof'):
        wanted = ops.bbox_overlaps(corners, corners, mode)
        for second in (upright, turned):
            found = ops.box_iou_rotated(upright, second, mode)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
    # A square and itself by an eighth of a turn share a regular octagon.
    square = torch.tensor([[3.0, 4, 2, 2, 0]])
    eighth = torch.tensor([[3.0, 4, 2, 2, math.pi / 4]])
    shared = 8 * (math.sqrt(2) - 1)
    found = ops.box_iou_rotated(square, eighth).item()
    assert found == pytest.approx(shared / (8 - shared), abs=1e-6)
    assert ops.box_iou_rotated(square, square * 0).item() == 0
    assert ops.box_iou_rotated(square[:0], square).shape == (0, 1)


@needs_compiled
@pytest.mark.parametrize('aligned', [False, True])
@pytest.mark.parametrize('clockwise', [False, True])
def test_rotated_overlaps_equal_the_compiled_ones(aligned, clockwise):
    first, second = rotated(60)[0], rotated(60, 1)[0]
    with operators_of(extension):
        found = ops.box_iou_rotated(first, second, aligned=aligned, clockwise=clockwise)
    with operators_of(compiled_extension()):
        wanted = ops.box_iou_rotated(first, second, aligned=aligned, clockwise=clockwise)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@needs_compiled
def test_rotated_suppression_equals_the_compiled_one():
    given = rotated(120)
    with operators_of(extension):
        found = ops.nms_rotated(*given, 0.3)
    with operators_of(compiled_extension()):
        wanted = ops.nms_rotated(*given, 0.3)
    assert torch.equal(found[1], wanted[1])


def test_rotated_boxes_of_other_labels_stay(ours):
    box = torch.tensor([[5.0, 5, 4, 2, 0.3]]).repeat(4, 1)
    scores = torch.tensor([0.1, 0.4, 0.3, 0.2])
    _, kept = ops.nms_rotated(box, scores, 0.5, labels=torch.tensor([0.0, 0, 1, 1]))
    assert kept.tolist() == [1, 2]
    assert ops.nms_rotated(box, scores, 0.5)[1].tolist() == [1]
