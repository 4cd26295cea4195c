"""Federated heads on two gloo processes train like one process."""

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

pytest.importorskip('mmdet')
from query_heads import build_query_head, query_inputs
from small_heads import STABLE_AP, build_head, make_inputs

LABELS = [[0, 2], [1]]
MODES = ('flatten', 'per_class')


def _dense(images, mode):
    head = build_head('FCOSHead', dict(STABLE_AP, mode=mode), federated=True)
    head = head.double()
    features, truths, metas = make_inputs()
    metas = [
        dict(meta, exhaustive_labels=own) for meta, own in zip(metas, LABELS)
    ]
    outs = head([level[images].double() for level in features])
    losses = head.loss_by_feat(*outs, truths[images], metas[images])
    return head, losses['loss_cls']


def _queries(images, mode):
    head = build_query_head(
        'DeformableDETRHead', dict(STABLE_AP, mode=mode), federated=True
    )
    scores, boxes, _, _, truths, metas = query_inputs('DeformableDETRHead')
    metas = [
        dict(meta, exhaustive_labels=own) for meta, own in zip(metas, LABELS)
    ]
    losses = head.loss_by_feat(
        scores[:, images],
        boxes[:, images],
        None,
        None,
        truths[images],
        metas[images],
    )
    return scores, losses['loss_cls'] + losses['d0.loss_cls']


def _train(images):
    """Value and gradient of each head and mode."""
    results = []
    for mode in MODES:
        head, loss = _dense(images, mode)
        loss.backward()
        results.append(loss.detach())
        results += [
            p.grad for name, p in head.named_parameters() if 'cls' in name
        ]
        scores, loss = _queries(images, mode)
        loss.backward()
        results += [loss.detach().double(), scores.grad.double()]
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
