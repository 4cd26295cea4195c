"""Heads of detectors on two gloo processes train like one process."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

pytest.importorskip('mmdet')
from mmengine.structures import InstanceData
from query_heads import BOXES, build_query_head, query_inputs
from small_box_heads import CLASSES, box_head_losses, build_box_head
from small_heads import STABLE_AP, build_head, make_inputs, objective, summed
from small_rcnn import federated_detector, make_batch

from mmrank.losses.ranking.rank_sort import box_balance

#: Classes for which each of two images is annotated.
LABELS = [[0, 2], [1]]
#: RoIs of each rank; for a rank without one the host skips the loss.
NUM_ROIS = ((5, 12), (17, 0))

pytestmark = pytest.mark.processes
draw = partial(torch.rand, dtype=torch.float64)


def _federated(metas):
    return [dict(meta, exhaustive_labels=own) for meta, own in zip(metas, LABELS)]


def _dense(images, name, **settings):
    """Losses and gradients of a dense head."""
    head = build_head(name, dict(STABLE_AP, **settings), federated='mode' in settings).double()
    features, truths, metas = make_inputs()
    outs = head([level[images].double() for level in features])
    losses = head.loss_by_feat(*outs, truths[images], _federated(metas)[images])
    objective(losses).backward()
    grads = [p.grad for key, p in head.named_parameters() if 'scale' not in key]
    losses = [summed(losses[key]) for key in ('loss_cls', 'loss_bbox')]
    return [*losses, head.loss_cls.loss.mean_positive.mean, *grads]


def _queries(images, mode):
    """Loss and gradients of a federated head on queries."""
    head = build_query_head('DeformableDETRHead', dict(STABLE_AP, mode=mode), federated=True)
    scores, boxes, _, _, truths, metas = query_inputs('DeformableDETRHead')
    losses = head.loss_by_feat(
        scores[:, images], boxes[:, images], None, None, truths[images], _federated(metas)[images]
    )
    loss = losses['loss_cls'] + losses['d0.loss_cls']
    loss.backward()
    return [loss, scores.grad]


def _denoising(images):
    """Loss and gradients of a head with denoising queries, of which no object means none."""
    head = build_query_head('DINOHead')
    scores, boxes, *encoder, truths, metas, info = query_inputs('DINOHead', (BOXES[0], []))
    number = info['num_denoising_queries']
    first = 0
    if not any(map(len, truths[images])):
        first = number
        info = dict(info, num_denoising_queries=0)
    losses = head.loss_by_feat(
        scores[:, images, first:],
        boxes[:, images, first:],
        *(x[images] for x in encoder),
        truths[images],
        metas[images],
        info,
    )
    ranked = sum(v.sum() for k, v in losses.items() if 'cls' in k)
    ranked.backward()
    return [ranked, scores.grad[:, :, number:], encoder[0].grad]


def _proposals(images, kind):
    """Loss and gradients of a federated RoI head, of given proposals on given features."""
    head = federated_detector(kind).double().roi_head
    torch.manual_seed(3)
    features = [draw(2, 16, 24 // 2**level, 24 // 2**level) for level in range(4)]
    proposals = []
    for number in (9, 14):
        corner = 60 * draw(number, 2)
        boxes = torch.cat([corner, corner + 6 + 30 * draw(number, 2)], 1)
        proposals.append(InstanceData(bboxes=boxes, scores=draw(number)))
    samples = make_batch()['data_samples']
    for sample, own in zip(samples, LABELS):
        sample.gt_instances.bboxes = sample.gt_instances.bboxes.double()
        sample.set_metainfo(dict(exhaustive_labels=own))
    losses = head.loss([x[images] for x in features], proposals[images], samples[images])
    loss = sum(value for key, value in losses.items() if key.endswith('loss_cls'))
    loss.backward()
    return [loss, *(p.grad for p in head.parameters() if p.grad is not None)]


def _rois(part, number):
    """Losses and gradients of a box head, the box loss averaged over the positives."""
    head = build_box_head(STABLE_AP, reg_class_agnostic=True, box_average='positives').double()
    torch.manual_seed(4)
    corner = 40 * draw(number, 2)
    boxes = torch.cat([corner, corner + 10 + 40 * draw(number, 2)], 1)
    labels = (2 * CLASSES * draw(number)).long().clamp(max=CLASSES)
    features = draw(number, 4, 1, 1) - 0.5
    rois = torch.cat([torch.zeros(number, 1), boxes], 1)
    targets = (boxes + 3) * (labels < CLASSES)[:, None]
    weights = torch.ones(number, 4, dtype=torch.float64)[part]
    outs = head(features[part])
    losses = head.loss(*outs, rois[part], labels[part], weights[:, 0], targets[part], weights)
    (losses['loss_cls'] + losses['loss_bbox']).backward()
    return [losses['loss_cls'], losses['loss_bbox'], *(p.grad for p in head.parameters())]


def _train(rank=None):
    """What the images and RoIs of a rank, or of both, give."""
    import mmrank.registry  # noqa: F401  a spawned process has not seen it

    images = slice(0, 2) if rank is None else slice(rank, rank + 1)
    results = []
    for mode in ('flatten', 'per_class'):
        results += _dense(images, 'FCOSHead', mode=mode)
        results += _queries(images, mode)
    results += _dense(images, 'RetinaHead')
    results += _denoising(images)
    for kind in ('faster', 'cascade'):
        results += _proposals(images, kind)
    for numbers in NUM_ROIS:
        first = slice(0, numbers[0])
        part = slice(None) if rank is None else (first, slice(numbers[0], None))[rank]
        results += _rois(part, sum(numbers))
    return [x.detach() for x in results]


def _train_part(rank):
    results = []
    for x in _train(rank):
        # What DDP does with the gradients, and the logger with the losses.
        mean = x / 2
        dist.all_reduce(mean)
        results.append(mean)
    return results


def test_two_ranks_equal_one_process():
    """Also where images are annotated for other classes, and where a rank has no proposal."""
    expected = _train()
    assert all(x.abs().sum() > 0 for x in expected)
    for results in run_on_ranks(_train_part, 2):
        assert len(results) == len(expected)
        for ours, whole in zip(results, expected):
            error = 1e-6 if whole.dtype == torch.float64 else 1e-5
            torch.testing.assert_close(ours, whole, rtol=error, atol=error / 1000)


def _evaluated():
    """Losses in eval mode of heads that balance their parts, or average over positives."""
    import mmrank.registry  # noqa: F401  a spawned process has not seen it

    features, truths, metas = make_inputs()
    results = []
    head = build_head('RetinaHead', dict(type='mmrank.RankSortLoss'), balance_boxes=True).eval()
    losses = head.loss_by_feat(*head(features), truths, metas)
    results += [losses['loss_cls'], *losses['loss_bbox']]
    head = build_box_head(STABLE_AP, reg_class_agnostic=True, box_average='positives').eval()
    losses = box_head_losses(head, *head(torch.ones(4, 4, 1, 1)))
    return [*results, losses['loss_cls'], losses['loss_bbox']]


def _ratio_of_rank(rank):
    parts = torch.tensor([[1.0, 0.0], [3.0, 2.0]])[rank]
    # A rank that evaluates does not wait for the others.
    return [box_balance(*parts, dist.group.WORLD), *(_evaluated() if rank == 0 else ())]


@pytest.mark.slow
def test_ratio_is_that_of_the_means_over_the_ranks():
    """Also on a rank without a single box; in eval mode a rank has its own."""
    (first, *alone), (second,) = run_on_ranks(_ratio_of_rank, 2)
    assert first == second == 2.0
    torch.testing.assert_close(alone, [x.detach() for x in _evaluated()])
