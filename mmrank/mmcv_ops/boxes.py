"""Overlaps, non-maximum suppression and RoIAlign of boxes along the axes."""

import numpy as np
import torch
import torchvision
from torch import Tensor

from mmrank.tensors import at_least_float32

from . import refuse_operator

_NAIVE = 0
_LINEAR = 1


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int = 0) -> Tensor:
    """Indices of what greedy non-maximum suppression leaves of corners, the best first."""
    boxes = at_least_float32(boxes)
    if offset:
        boxes = torch.cat([boxes[:, :2], boxes[:, 2:] + offset], dim=1)
    # Equal scores stand in the order of mmcv, which does not sort stably.
    order = scores.sort(descending=True)[1]
    ranks = torch.arange(len(order), 0, -1, dtype=boxes.dtype, device=boxes.device)
    # In the precision of the overlaps, so that equal ones stay equal.
    threshold = torch.tensor(iou_threshold, dtype=boxes.dtype).item()
    return order[torchvision.ops.nms(boxes[order], ranks, threshold)]


def _fill_gaps(rows: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return the rows to keep, gaps filled from the end: the order that decides between ties."""
    number = np.count_nonzero(keep)
    gaps = np.flatnonzero(~keep[:number])
    rows[gaps] = rows[number + np.flatnonzero(keep[number:])[::-1]]
    return rows[:number]


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Indices of what soft non-maximum suppression leaves, the best first.

    Overlaps lower the scores of worse boxes: method 0 removes them, 1 multiplies by 1 - IoU, 2 by
    exp(-IoU^2 / sigma). ``dets`` receives the corners and new scores, (N, 5).
    """
    rows = at_least_float32(torch.cat([boxes, scores[:, None].to(boxes)], dim=1)).numpy().copy()
    threshold = rows.dtype.type(iou_threshold)
    order = np.arange(len(rows))
    done = 0
    while done < len(rows):
        best = done + rows[done:, 4].argmax()
        rows[[done, best]] = rows[[best, done]]
        order[[done, best]] = order[[best, done]]
        rest = rows[done + 1 :]
        corner = np.maximum(rows[done, :2], rest[:, :2])
        shared = np.maximum(np.minimum(rows[done, 2:4], rest[:, 2:4]) - corner + offset, 0).prod(1)
        areas = (rows[done:, 2:4] - rows[done:, :2] + offset).prod(axis=1)
        with np.errstate(invalid='ignore', divide='ignore'):  # boxes without an area
            ious = shared / (areas[0] + areas[1:] - shared)
        if method == _NAIVE:
            rest[:, 4] *= ~(ious >= threshold)
        elif method == _LINEAR:
            rest[:, 4] *= np.where(ious >= threshold, 1 - ious, 1)
        else:
            rest[:, 4] *= np.exp(-(ious * ious) / rows.dtype.type(sigma))
        done += 1
        keep = ~(rest[:, 4] < rows.dtype.type(min_score))
        if not keep.all():
            number = done + len(_fill_gaps(rest, keep))
            _fill_gaps(order[done:], keep)
            rows = rows[:number]
            order = order[:number]
    dets[: len(rows)] = torch.from_numpy(rows).to(dets)
    return torch.from_numpy(order)


def bbox_overlaps(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int
) -> None:
    """Write overlaps into ``ious``: mode 0 divides by the union, 1 by the area of ``bboxes1``."""
    first = at_least_float32(bboxes1)
    second = at_least_float32(bboxes2)
    if not aligned:
        first = first[:, None]
    corner = torch.maximum(first[..., :2], second[..., :2])
    size = torch.minimum(first[..., 2:], second[..., 2:]) - corner + offset
    shared = size.clamp(min=0).prod(dim=-1)
    base = (first[..., 2:] - first[..., :2] + offset).prod(dim=-1)
    if mode == 0:
        base = base + (second[..., 2:] - second[..., :2] + offset).prod(dim=-1) - shared
    ious.copy_(shared / base)


_MEAN = 1


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    *argmax: Tensor,
    spatial_scale: float,
    aligned_height: int,
    aligned_width: int,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the mean of the samples of each bin into ``output``."""
    if pool_mode != _MEAN:
        refuse_operator("roi_align with pool_mode='max'")
    features = at_least_float32(input)
    size = spatial_scale, aligned_height, aligned_width, sampling_ratio, aligned
    output.copy_(torch.ops.torchvision.roi_align(features, rois.to(features.dtype), *size))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the gradient of the features; see :func:`roi_align_forward`."""
    grad_output = at_least_float32(grad_output)
    rois = rois.to(grad_output.dtype)
    backward = torch.ops.torchvision._roi_align_backward
    size = spatial_scale, aligned_height, aligned_width
    grad = backward(grad_output, rois, *size, *grad_input.shape, sampling_ratio, aligned)
    grad_input.copy_(grad)
