"""Box heads on two gloo processes train like one process."""

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

pytest.importorskip('mmdet')
from mmdet.registry import MODELS
from mmengine.registry import init_default_scope

from mmrank.losses.ranking.rank_sort import box_balance

CLASSES = 3
SIZES = ((5, 12), (17, 0))


def _head():
    import mmrank.registry  # noqa: F401, a spawned process has not seen it

    init_default_scope('mmdet')
    torch.manual_seed(0)
    head = MODELS.build(
        dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            in_channels=4,
            fc_out_channels=8,
            roi_feat_size=1,
            num_classes=CLASSES,
            reg_decoded_bbox=True,
            reg_class_agnostic=True,
            box_average='positives',
            loss_cls=dict(type='mmrank.StableAPLoss'),
            loss_bbox=dict(type='GIoULoss', loss_weight=2.0),
        )
    )
    head.init_weights()
    return head.double()


def _batch(sizes):
    """RoIs of all ranks: features, boxes, labels and targets."""
    g = torch.Generator().manual_seed(4)
    n = sum(sizes)
    corner = 40 * torch.rand(n, 2, generator=g, dtype=torch.float64)
    size = 10 + 40 * torch.rand(n, 2, generator=g, dtype=torch.float64)
    boxes = torch.cat([corner, corner + size], 1)
    labels = torch.randint(0, 2 * CLASSES, (n,), generator=g)
    return (
        torch.randn(n, 4, 1, 1, generator=g, dtype=torch.float64),
        torch.cat([torch.zeros(n, 1, dtype=torch.float64), boxes], 1),
        labels.clamp(max=CLASSES),
        boxes + 3,
    )


def _train(features, rois, labels, targets):
    head = _head()
    weights = torch.ones(len(labels), dtype=torch.float64)
    losses = head.loss(
        *head(features),
        rois,
        labels,
        weights,
        targets * (labels < CLASSES)[:, None],
        weights[:, None].expand(-1, 4),
    )
    (losses['loss_cls'] + losses['loss_bbox']).backward()
    parts = [losses['loss_cls'], losses['loss_bbox']]
    return parts + [p.grad for p in head.parameters()]


def _train_parts(rank):
    """Each split in turn: to start a process takes longer than to train."""
    results = []
    for sizes in SIZES:
        begin = sum(sizes[:rank])
        part = slice(begin, begin + sizes[rank])
        # What DDP does with the gradients, and the logger with the losses.
        for x in _train(*(x[part] for x in _batch(sizes))):
            mean = x.detach() / len(sizes)
            dist.all_reduce(mean)
            results.append(mean)
    return results


@pytest.mark.slow
def test_two_ranks_equal_one_process():
    """Also when a rank has no proposal, for which the host skips the loss."""
    expected = [x for sizes in SIZES for x in _train(*_batch(sizes))]
    assert all(x.abs().sum() > 0 for x in expected)
    for results in run_on_ranks(_train_parts, 2):
        assert len(results) == len(expected)
        for ours, whole in zip(results, expected):
            torch.testing.assert_close(ours, whole, rtol=1e-6, atol=1e-9)


def _ratio_of_rank(rank):
    return [box_balance(torch.tensor([1.0, 3.0][rank]), torch.tensor([0.0, 2.0][rank]))]


@pytest.mark.slow
def test_ratio_is_that_of_the_means_over_the_ranks():
    """Also on a rank without a single box."""
    (first,), (second,) = run_on_ranks(_ratio_of_rank, 2)
    assert first == second == 2.0
