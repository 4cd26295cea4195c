"""Heads of the DETR family on ranking losses."""

import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy, bbox_overlaps
from query_heads import (
    CLASSES,
    GROUPS,
    LAYERS,
    QUERIES,
    QUERY_HEADS,
    STABLE_AP,
    build_query_head,
    query_inputs,
)
from small_heads import FOCAL, objective, watch
from torch import nn

from mmrank.errors import UserError
from mmrank.losses import StableAPLoss

HEADS = sorted(QUERY_HEADS)
RANKINGS = {'DeformableDETRHead, two stages': LAYERS + 1, 'DINOHead': 2 * LAYERS + 1}


class _OneLossAfterTheOther(nn.Module):
    """A plain ``loss_cls`` that uses the next of its losses in each call."""

    use_sigmoid = True

    def __init__(self, losses):
        super().__init__()
        # Not a ModuleList: a ranking loss inside a stock head is refused.
        self.losses, self.calls = [*losses], []

    def forward(self, pred, target, weight=None, avg_factor=None):
        loss = self.losses[len(self.calls)]
        self.calls.append((pred, target))
        return loss(pred, target, weight)


@pytest.mark.parametrize('name', HEADS)
def test_losses_are_those_of_one_ranking_per_layer(name):
    """The host head with a list of losses of our own as the reference."""
    plain = dict(type='mmrank.StableAPLoss', quality=0)
    head = build_query_head(name, plain)
    stock = build_query_head(name, FOCAL, listwise=False)
    number = RANKINGS.get(name, LAYERS)
    stock.loss_cls = _OneLossAfterTheOther(StableAPLoss(quality=0) for _ in range(number))
    ours, theirs = query_inputs(name), query_inputs(name)
    for _ in range(2):  # the second one starts from EMA state
        losses = head.loss_by_feat(*ours)
        stock.loss_cls.calls.clear()
        expected = stock.loss_by_feat(*theirs)
        assert losses.keys() == expected.keys()
        for key, value in losses.items():
            torch.testing.assert_close(value, expected[key], msg=key)
        for tensor in [x for x in ours + theirs if torch.is_tensor(x)]:
            tensor.grad = None
        objective(losses).backward()
        objective(expected).backward()
        for a, b in zip(ours, theirs):
            if torch.is_tensor(a):
                torch.testing.assert_close(a.grad, b.grad)
                assert a.grad.isfinite().all()
    assert len(stock.loss_cls.calls) == number


def test_denoising_queries_have_rankings_of_their_own():
    head = build_query_head('DINOHead')
    seen = {
        part: [watch(collector.loss) for collector in getattr(head.loss_cls, part)]
        for part in ('layers', 'denoising')
    }
    args = query_inputs('DINOHead')
    head.loss_by_feat(*args)
    number = args[-1]['num_denoising_queries']
    for layer in range(LAYERS):
        ((scores, labels, *_),) = seen['denoising'][layer]
        noisy = args[0][layer, :, :number].reshape(-1, CLASSES)
        assert torch.equal(scores, noisy)
        # Each object once for each group.
        assert (labels < CLASSES).sum() == 3 * GROUPS
        ((scores, labels, *_),) = seen['layers'][layer]
        rest = args[0][layer, :, number:].reshape(-1, CLASSES)
        assert torch.equal(scores, rest)
        assert (labels < CLASSES).sum() == 3


@pytest.mark.parametrize('name', ['DABDETRHead', 'DINOHead'])
def test_layers_together_are_told_the_boxes(name):
    """As one by one; the rankings themselves: test_separate_rankings.py."""
    found = []
    for together in (True, False):
        head = build_query_head(name, dict(STABLE_AP, quality=0.9))
        assert head.loss_cls.together
        head.loss_cls.together = together
        found.append(head.loss_by_feat(*query_inputs(name)))
        assert head.loss_cls._waiting is None
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('loss', ['RankSortLoss', 'ALRPLoss', 'APLoss', 'IABCELoss'])
@pytest.mark.parametrize('name', ['DETRHead', 'DINOHead'])
def test_losses_with_box_values(name, loss):
    balance = loss == 'RankSortLoss'
    head = build_query_head(name, dict(type=f'mmrank.{loss}'), balance_boxes=balance)
    args = query_inputs(name)
    losses = head.loss_by_feat(*args)
    objective(losses).backward()
    for tensor in args[:2]:
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().sum() > 0
    if balance:
        boxes = sum(v for k, v in losses.items() if 'bbox' in k or 'iou' in k)
        ranked = sum(v for k, v in losses.items() if 'cls' in k)
        torch.testing.assert_close(boxes, ranked)


@pytest.mark.parametrize('name', ['DETRHead', 'DINOHead'])
def test_quality_is_the_iou_of_the_matched_query(name):
    """Also of denoising queries; the box losses keep their bits."""
    head = build_query_head(name, dict(type='mmrank.RankSortLoss'))
    parts = (head.loss_cls.layers[-1], *head.loss_cls.denoising[-1:])
    calls = [watch(collector.loss) for collector in parts]
    args = query_inputs(name)
    losses = head.loss_by_feat(*args)
    boxes, truths = args[1][-1], next(x for x in args if isinstance(x, list))
    noisy = boxes.size(1) - QUERIES
    for ((_, labels, *_, kwargs),), own in zip(calls, (boxes[:, noisy:], boxes[:, :noisy])):
        rows = (labels < CLASSES).nonzero().squeeze(1)
        pred = bbox_cxcywh_to_xyxy(own.reshape(-1, 4)[rows]) * 128
        # The class of an object is its place in its image.
        objects = [truths[row // own.size(1)].bboxes[labels[row]] for row in rows.tolist()]
        expected = bbox_overlaps(pred, torch.stack(objects), is_aligned=True)
        quality = kwargs['quality']
        assert not quality.requires_grad
        torch.testing.assert_close(quality, expected.detach(), rtol=0, atol=1e-6)
        assert expected.max() > 0
    assert len(calls) == 1 + (name == 'DINOHead')
    plain = build_query_head(name).loss_by_feat(*args)
    assert all(torch.equal(losses[key], plain[key]) for key in plain if 'cls' not in key)


@pytest.mark.parametrize('name', HEADS)
def test_scores_are_shown_centred(name):
    head = build_query_head(name)
    head.loss_by_feat(*query_inputs(name))
    args = query_inputs(name, seed=2)
    metas = args[-2] if name == 'DINOHead' else args[-1]
    raw = args[0].detach()[-1]
    centre = head.loss_cls.layers[-1].loss.logit_centre()
    shown = head.predict_by_feat(args[0].detach(), args[1].detach(), metas)
    for scores, result in zip(raw, shown):
        best = (scores - centre).sigmoid().flatten().topk(5).values
        torch.testing.assert_close(result.scores, best)
        assert len(result.bboxes) == 5
    head.centre_scores = False
    shown = head.predict_by_feat(args[0].detach(), args[1].detach(), metas)
    best = raw[0].sigmoid().flatten().topk(5).values
    torch.testing.assert_close(shown[0].scores, best)


def test_other_number_of_decoder_layers_is_named():
    head = build_query_head('DETRHead', num_layers=3)
    with pytest.raises(UserError, match=r'num_layers=2'):
        head.loss_by_feat(*query_inputs('DETRHead'))


def test_more_objects_than_queries_warn_once(monkeypatch):
    warned = []
    place = 'mmrank.models.dense_heads.listwise_detr_mixin.print_log'
    monkeypatch.setattr(place, lambda text, **_: warned.append(text))
    head = build_query_head('DETRHead')
    many = [[[1.0 * i, 1, 20.0 + i, 30] for i in range(QUERIES + 1)], []]
    for _ in range(2):
        head.loss_by_feat(*query_inputs('DETRHead', many))
    (text,) = warned
    assert '11 objects' in text
    assert 'num_queries=11' in text
