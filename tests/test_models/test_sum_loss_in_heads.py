"""A sum of ranking losses in each kind of head."""

import copy
from functools import partial

import pytest
import torch
from labelled import data_samples

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from small_box_heads import CLASSES, box_head_losses, build_box_head
from small_heads import build_head, head_losses
from small_retriever import build_head as build_retrieval_head
from small_retriever import samples

from mmrank.engine.hooks import SampleIndexHook
from mmrank.models import OneVsRestHead

AP = dict(type='mmrank.StableAPLoss')
AUC = dict(type='mmrank.AUCLoss', tau=1.0)
RANK_SORT = dict(type='mmrank.RankSortLoss')


def sum_of(*losses, **kwargs):
    losses = list(copy.deepcopy(losses))
    return dict(type='mmrank.SumLoss', losses=losses, **kwargs)


def _dense(loss):
    head = build_head('ATSSHead', copy.deepcopy(loss))
    losses = head_losses(head)
    return head, losses, losses['loss_cls'], head.loss_cls.loss


def _box(loss, listwise=True):
    head = build_box_head(copy.deepcopy(loss), listwise)
    scores, boxes = head(torch.randn(4, 4, 1, 1))
    assert scores.shape == (4, CLASSES)
    losses = box_head_losses(head, scores, boxes)
    return head, losses, losses['loss_cls'], head.loss_cls


def _retrieval(loss):
    head = build_retrieval_head(loss)
    g = torch.Generator().manual_seed(0)
    feats = torch.randn(8, 8, generator=g).requires_grad_()
    losses = head.loss(feats, samples([0, 0, 1, 1, 2, 2, 3, 3]))
    return head, losses, losses['loss'], head.loss_module


def _one_vs_rest(loss):
    torch.manual_seed(0)
    head = OneVsRestHead(CLASSES, 8, copy.deepcopy(loss))
    head.init_weights()
    g = torch.Generator().manual_seed(1)
    feats = torch.randn(12, 8, generator=g)
    labels = data_samples([i % CLASSES for i in range(12)])
    losses = head.loss(feats, labels)
    return head, losses, losses['loss'], head.loss_module


HEADS = {
    'dense': _dense,
    'stock box': partial(_box, listwise=False),
    'box': _box,
    'retrieval': _retrieval,
    'one-vs-rest': _one_vs_rest,
}


@pytest.mark.parametrize('kind', HEADS)
def test_equals_the_parts(kind):
    run = HEADS[kind]
    _, whole, value, total = run(sum_of(AP, AUC, weights=[1.0, 0.25]))
    _, alone, ap, _ = run(AP)
    _, _, auc, _ = run(AUC)
    torch.testing.assert_close(value, ap + 0.25 * auc)
    assert whole.keys() == alone.keys()
    torch.testing.assert_close(total.diagnostics['part_0'], ap.detach())
    value.backward()
    _, _, one, _ = run(sum_of(AP))
    assert torch.equal(one, ap)


@pytest.mark.parametrize('kind', ['dense', 'box', 'one-vs-rest'])
def test_the_head_fills_in_the_number_of_classes(kind):
    head, _, _, total = HEADS[kind](sum_of(dict(AP, mode='per_class'), AUC))
    assert total.num_columns == head.num_classes
    assert {x.num_columns for x in total.losses} == {head.num_classes}
    assert len(total.losses[0].mean_positive.mean) == head.num_classes


@pytest.mark.parametrize('kind', ['dense', 'box'])
def test_quality_of_the_boxes(kind):
    run = HEADS[kind]
    *_, value, _ = run(sum_of(AUC, RANK_SORT))
    *_, auc, _ = run(AUC)
    *_, rank_sort, _ = run(RANK_SORT)
    torch.testing.assert_close(value, auc + rank_sort)


def test_index_of_each_sample():
    soap = dict(type='mmrank.SOAPLoss', num_samples=12)
    head, _, value, total = _one_vs_rest(sum_of(soap, AUC))
    *_, alone, _ = _one_vs_rest(soap)
    *_, auc, _ = _one_vs_rest(AUC)
    torch.testing.assert_close(value, alone + auc)
    assert total.losses[0].num_columns == CLASSES

    class Loaded:
        class Loop:
            class dataloader:
                dataset = range(13)

        train_loop, model = Loop, head

    with pytest.raises(ValueError, match='num_samples=12, .* 13 samples'):
        SampleIndexHook().before_train(Loaded)
