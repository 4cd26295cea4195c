"""Overlaps and non-maximum suppression of rotated boxes."""

import torch
from torch import Tensor

#: Pairs of boxes at a time: each has 24 points in float64.
_PAIRS = 1 << 16
_SMALLEST_AREA = 1e-14


def _cross(first: Tensor, second: Tensor) -> Tensor:
    """Return the cross product of vectors in the plane, without their last dimension."""
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]


def _vertices(boxes: Tensor, centre: Tensor) -> Tensor:
    """Return the corners of boxes around a centre, shape (P, 4, 2)."""
    along = torch.stack([boxes[:, 4].cos(), boxes[:, 4].sin()], dim=-1) * boxes[:, 2:3] / 2
    down = torch.stack([-boxes[:, 4].sin(), boxes[:, 4].cos()], dim=-1) * boxes[:, 3:4] / 2
    middle = boxes[:, :2] - centre
    corners = [-along - down, along - down, along + down, down - along]
    return torch.stack([middle + corner for corner in corners], dim=1)


def _crossings(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return where edges of two boxes cross, shape (P, 16, 2), and whether they do."""
    edge1 = (first.roll(-1, dims=1) - first)[:, :, None]
    edge2 = (second.roll(-1, dims=1) - second)[:, None]
    between = second[:, None] - first[:, :, None]
    determinant = _cross(edge1, edge2)
    parallel = determinant.abs() <= _SMALLEST_AREA
    determinant = determinant.where(~parallel, 1)
    on_first = _cross(between, edge2) / determinant
    on_second = _cross(between, edge1) / determinant
    crosses = (on_first >= 0) & (on_first <= 1) & (on_second >= 0) & (on_second <= 1) & ~parallel
    points = first[:, :, None] + edge1 * on_first[..., None]
    return points.flatten(1, 2), crosses.flatten(1)


def _inside(points: Tensor, box: Tensor) -> Tensor:
    """Return whether points (P, 4, 2) lie in a box of corners (P, 4, 2)."""
    relative = points - box[:, :1]
    along = (box[:, 1] - box[:, 0])[:, None]
    down = (box[:, 3] - box[:, 0])[:, None]
    on_along = (relative * along).sum(dim=-1)
    on_down = (relative * down).sum(dim=-1)
    right = (on_along >= 0) & (on_along <= (along * along).sum(dim=-1))
    return right & (on_down >= 0) & (on_down <= (down * down).sum(dim=-1))


def _shared_areas(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return the areas that pairs of boxes (P, 5) share, shape (P,)."""
    centre = (boxes1[:, :2] + boxes2[:, :2]) / 2
    first = _vertices(boxes1, centre)
    second = _vertices(boxes2, centre)
    crossing, crosses = _crossings(first, second)
    points = torch.cat([crossing, first, second], dim=1)
    valid = torch.cat([crosses, _inside(first, second), _inside(second, first)], dim=1)
    # The shared part is convex: its corners, sorted by their angle around a point inside.
    number = valid.sum(dim=1)
    middle = (points * valid[..., None]).sum(dim=1) / number.clamp(min=1)[:, None]
    points = points - middle[:, None]
    angle = torch.atan2(points[..., 1], points[..., 0]).where(valid, torch.inf)
    order = angle.argsort(dim=1)
    points = points.gather(1, order[..., None].expand(-1, -1, 2))
    # What is not a corner takes the place of the last one, and adds nothing.
    last = (number - 1).clamp(min=0)[:, None]
    place = torch.arange(points.shape[1], device=points.device).minimum(last)
    points = points.gather(1, place[..., None].expand(-1, -1, 2))
    area = _cross(points, points.roll(-1, dims=1)).sum(dim=1).abs() / 2
    return area.where(number > 2, 0)


def _overlaps(boxes1: Tensor, boxes2: Tensor, mode_flag: int) -> Tensor:
    """Return the overlaps of pairs of boxes, shape (P,), float64."""
    parts = []
    for first, second in zip(boxes1.split(_PAIRS), boxes2.split(_PAIRS), strict=True):
        first = first[:, :5].double()
        second = second[:, :5].double()
        area1 = first[:, 2] * first[:, 3]
        area2 = second[:, 2] * second[:, 3]
        shared = _shared_areas(first, second)
        base = area1 + area2 - shared if mode_flag == 0 else area1
        flat = (area1 < _SMALLEST_AREA) | (area2 < _SMALLEST_AREA)
        parts.append((shared / base).where(~flat, 0))
    return torch.cat(parts)


def box_iou_rotated(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool
) -> None:
    """Write overlaps of rotated boxes into ``ious``.

    Args:
        bboxes1: Centre, width, height and angle in radians, clockwise, shape (N, 5).
        bboxes2: Shape (M, 5).
        ious: Shape (N,) where ``aligned``, else (N * M,).
        mode_flag: 0 divides by the union, 1 by the area of ``bboxes1``.
        aligned: Pairs by index.
    """
    if not ious.numel():
        return
    if not aligned:
        number = len(bboxes1)
        bboxes1 = bboxes1.repeat_interleave(len(bboxes2), dim=0)
        bboxes2 = bboxes2.repeat(number, 1)
    ious.copy_(_overlaps(bboxes1, bboxes2, mode_flag))


def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    """Greedy non-maximum suppression of rotated boxes.

    Args:
        dets: Centre, width, height and angle, shape (N, 5); a sixth column has the labels.
        scores: Shape (N,).
        order: Indices, the best first, shape (N,).
        dets_sorted: Not needed.
        labels: Shape (N,), where ``multi_label``.
        iou_threshold: A box that overlaps a better one by this or more goes.
        multi_label: Boxes of other labels stay.

    Returns:
        Indices of what stays, the best first, int64.
    """
    threshold = torch.tensor(iou_threshold, dtype=torch.float32).item()
    kept = []
    left = order
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        pairs = dets[best].expand(len(left), -1), dets[left]
        goes = _overlaps(*pairs, 0) >= threshold if len(left) else left.bool()
        if multi_label:
            goes = goes & (labels[left] == labels[best])
        left = left[~goes]
    return torch.stack(kept) if kept else order
