"""Federated heads on two gloo processes train like one process."""

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

pytest.importorskip('mmdet')
from mmengine.structures import InstanceData
from query_heads import build_query_head, query_inputs
from small_heads import STABLE_AP, build_head, make_inputs
from small_rcnn import federated_detector, make_batch

LABELS = [[0, 2], [1]]
MODES = ('flatten', 'per_class')


def _dense(images, mode):
    head = build_head('FCOSHead', dict(STABLE_AP, mode=mode), federated=True)
    head = head.double()
    features, truths, metas = make_inputs()
    metas = [dict(meta, exhaustive_labels=own) for meta, own in zip(metas, LABELS)]
    outs = head([level[images].double() for level in features])
    losses = head.loss_by_feat(*outs, truths[images], metas[images])
    return head, losses['loss_cls']


def _queries(images, mode):
    head = build_query_head('DeformableDETRHead', dict(STABLE_AP, mode=mode), federated=True)
    scores, boxes, _, _, truths, metas = query_inputs('DeformableDETRHead')
    metas = [dict(meta, exhaustive_labels=own) for meta, own in zip(metas, LABELS)]
    losses = head.loss_by_feat(
        scores[:, images], boxes[:, images], None, None, truths[images], metas[images]
    )
    return scores, losses['loss_cls'] + losses['d0.loss_cls']


def _proposals(images, kind):
    """RoI head and loss of given proposals on given features."""
    import mmrank.registry  # noqa: F401, a spawned process has not seen it

    head = federated_detector(kind).double().roi_head
    g = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    features = [random(2, 16, 24 // 2**level, 24 // 2**level) for level in range(4)]
    proposals = []
    for number in (9, 14):
        corner = 60 * random(number, 2)
        boxes = torch.cat([corner, corner + 6 + 30 * random(number, 2)], 1)
        proposals.append(InstanceData(bboxes=boxes, scores=random(number)))
    samples = make_batch()['data_samples']
    for sample, own in zip(samples, LABELS):
        sample.gt_instances.bboxes = sample.gt_instances.bboxes.double()
        sample.set_metainfo(dict(exhaustive_labels=own))
    losses = head.loss([x[images] for x in features], proposals[images], samples[images])
    return head, sum(v for k, v in losses.items() if k.endswith('loss_cls'))


def _train(images):
    """Value and gradient of each head and mode."""
    results = []
    for mode in MODES:
        head, loss = _dense(images, mode)
        loss.backward()
        results.append(loss.detach())
        results += [p.grad for name, p in head.named_parameters() if 'cls' in name]
        scores, loss = _queries(images, mode)
        loss.backward()
        results += [loss.detach().double(), scores.grad.double()]
    for kind in ('faster', 'cascade'):
        head, loss = _proposals(images, kind)
        loss.backward()
        results.append(loss.detach())
        results += [p.grad for p in head.parameters() if p.grad is not None]
    return results


def _train_part(rank):
    results = []
    for x in _train(slice(rank, rank + 1)):
        # What DDP does with the gradients, and the logger with the losses.
        mean = x / 2
        dist.all_reduce(mean)
        results.append(mean)
    return results


@pytest.mark.slow
def test_two_ranks_equal_one_process():
    """An image on each rank, annotated for other classes."""
    expected = _train(slice(0, 2))
    assert all(x.abs().sum() > 0 for x in expected)
    for results in run_on_ranks(_train_part, 2):
        assert len(results) == len(expected)
        for ours, whole in zip(results, expected):
            torch.testing.assert_close(ours, whole, rtol=1e-5, atol=1e-8)
