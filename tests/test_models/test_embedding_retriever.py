"""The retriever by itself, with prototypes and inside a Runner."""

import copy

import numpy as np
import pytest
import torch
from labelled import data_samples
from mmengine.registry import MODELS
from small_retriever import CLASSES, DIM, SOPRC, STABLE_AP, build_retriever
from tiny_runner import loader, make
from torch.nn.functional import normalize

pytest.importorskip('mmpretrain')

from mmpretrain.datasets import BaseDataset


def _images(n):
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, 16, 16, generator=g)


def _samples(n):
    return data_samples([i % CLASSES for i in range(n)])


@pytest.mark.parametrize('given', [True, False])
def test_predicts_features_alone(given):
    model = build_retriever().eval()
    rows = model(_images(3), _samples(3) if given else None, mode='predict')
    expected = normalize(model(_images(3)), dim=1)
    for i, row in enumerate(rows):
        torch.testing.assert_close(row.feature, expected[i])
        assert 'pred_score' not in row
        assert ('gt_label' in row) == given


def test_frozen_batch_norms_stay_as_they_are():
    model = build_retriever(freeze_bn=True).train()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 3
    before = copy.deepcopy([m.state_dict() for m in norms])
    model(_images(8), _samples(8), mode='loss')['loss'].backward()
    for layer, state in zip(norms, before):
        assert not layer.training
        assert not any(p.requires_grad for p in layer.parameters())
        for name, value in layer.state_dict().items():
            assert torch.equal(value, state[name])
    assert model.image_encoder[0].blocks[0][0].weight.grad.abs().sum() > 0
    assert build_retriever().train().image_encoder[0].blocks[0][1].training


class Blots(BaseDataset):
    """Each class a mean colour; images of noise around it."""

    def __init__(self, per_class=6, **kwargs):
        self.per_class = per_class
        super().__init__(
            ann_file='',
            metainfo=dict(classes=tuple('abcd')),
            pipeline=[dict(type='mmpretrain.PackInputs')],
            **kwargs,
        )

    def load_data_list(self):
        rng = np.random.default_rng(0)
        colours = rng.normal(size=(CLASSES, 3))
        labels = [c for c in range(CLASSES) for _ in range(self.per_class)]
        if self.per_class > 2:
            labels = labels[:-2]
        return [
            dict(img=(colours[c] + rng.normal(size=(16, 16, 3))).astype('f4'), gt_label=c)
            for c in labels
        ]


def _runner(tmp_path, model, hooks=(), iters=2):
    return make(
        model,
        tmp_path,
        Blots(),
        val_dataloader=loader(Blots(per_class=2), shuffle=False),
        val_evaluator=dict(type='mmrank.RetrievalMetric', recall_at=[1]),
        train_cfg=dict(by_epoch=False, max_iters=iters, val_interval=iters),
        val_cfg=dict(),
        custom_hooks=list(hooks),
        default_scope='mmpretrain',
    )


COUNTS = dict(SOPRC, prior='counts')
HOOKS = {
    'counts': [dict(type='mmrank.ClassCountsHook')],
    'exact': [
        dict(type='mmrank.ClassCountsHook'),
        dict(type='mmrank.PreviousWeightsHook'),
        dict(type='mmrank.RankingMonitorHook', interval=1),
    ],
}


def _head(loss, **kwargs):
    return dict(
        type='mmrank.RetrievalHead',
        num_classes=CLASSES,
        loss=dict(loss),
        memory=dict(size=20, dim=DIM),
        **kwargs,
    )


@pytest.mark.parametrize(
    ('loss', 'hooks'),
    [(STABLE_AP, 'counts'), ({**STABLE_AP, 'mean_mode': 'exact'}, 'exact'), (COUNTS, 'counts')],
)
def test_trains_and_is_evaluated(tmp_path, loss, hooks):
    model = build_retriever(head=_head(loss))
    before = copy.deepcopy(model.image_encoder.state_dict())
    runner = _runner(tmp_path, model, HOOKS[hooks])
    runner.train()
    after = model.image_encoder.state_dict()
    assert not torch.equal(after['2.fc.weight'], before['2.fc.weight'])
    scalars = runner.message_hub.log_scalars
    assert scalars['val/retrieval/mAP'].current() > 0
    assert {'train/loss', 'train/pos_score'} <= set(scalars)
    assert model.head.memory.num_batches == 2
    if loss is COUNTS:
        counts = torch.tensor([6, 6, 6, 4], dtype=torch.float64)
        prior = model.head.loss_module.prior.prior
        torch.testing.assert_close(prior, counts / 22)


def test_exact_mode_tracks_the_mean_under_the_previous_weights(tmp_path):
    """Learning rate 0: the correction is 0, though the memory moves."""
    models = []
    for mode, hooks in (('plain', []), ('exact', HOOKS['exact'][1:])):
        loss = {**STABLE_AP, 'mean_mode': mode}
        models.append(build_retriever(head=_head(loss), freeze_bn=True))
        runner = _runner(tmp_path, models[-1], hooks, iters=3)
        runner.optim_wrapper = runner.build_optim_wrapper(dict(optimizer=dict(type='SGD', lr=0.0)))
        runner.train()
    plain, exact = (m.head for m in models)
    assert plain.memory.next_slot == exact.memory.next_slot
    torch.testing.assert_close(
        plain.loss_module.mean_positive.mean, exact.loss_module.mean_positive.mean
    )


def test_a_model_without_a_head_gives_features_alone():
    model = MODELS.build(
        dict(type='mmrank.EmbeddingRetriever', image_encoder=dict(type='mmrank.SmallConvNet'))
    )
    with pytest.raises(ValueError, match='no head'):
        model(torch.zeros(2, 1, 28, 28), _samples(2), mode='loss')
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 64, 1, 1)
