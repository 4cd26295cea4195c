"""Heads, losses and samplers compare what they are given with the training set, and say the fix."""

import copy
from types import SimpleNamespace

import pytest
import small_retriever
import torch

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from labelled import Labels
from mmdet.structures import DetDataSample
from mmengine.dataset import BaseDataset, RepeatDataset
from mmengine.logging import MessageHub
from mmengine.registry import DefaultScope
from mmengine.structures import BaseDataElement
from query_heads import build_query_head, query_inputs
from small_box_heads import build_box_head
from small_heads import STABLE_AP, build_head, head_losses, make_inputs
from small_models import two_tower
from small_retriever import samples
from torch.utils.data import DataLoader

from mmrank.datasets import one_size_collate
from mmrank.datasets.interactions.interaction_dataset import InteractionDataset
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.samplers import InBatchPairSampler
from mmrank.engine.hooks.data_check_hooks import StartCheckHook
from mmrank.errors import UserError
from mmrank.losses import AUCLoss, SmoothAPLoss, StableAPLoss, SumLoss
from mmrank.registry import DATA_SAMPLERS, MODELS


def test_a_loss_in_a_stock_head_is_refused_at_its_first_call():
    dense = build_head('RetinaHead', STABLE_AP, listwise=False)
    query = build_query_head('DINOHead', STABLE_AP, listwise=False)
    with pytest.raises(UserError, match=r"Fix: type='mmrank.ListwiseHead'"):
        head_losses(dense)
    with pytest.raises(UserError, match=r"Fix: type='mmrank.ListwiseHead'"):
        query.loss_by_feat(*query_inputs('DINOHead'))


def test_a_head_of_ones_own_holds_a_sum():
    scores = torch.zeros(2, 3)
    labels = torch.tensor([0, 3])
    loss = SumLoss([StableAPLoss(), AUCLoss()])
    with pytest.raises(UserError, match='held_by'):
        loss(scores, labels, avg_factor=1)
    loss.held_by(torch.nn.Linear(1, 1))
    assert loss(scores, labels, avg_factor=1).isfinite()


@pytest.fixture
def training_on():
    """Notes the metainfo of a training set as mmengine's runner does."""
    hub = MessageHub.get_current_instance()
    yield lambda **metainfo: hub.update_info('dataset_meta', metainfo)
    for key in ('dataset_meta', 'mmrank_batch'):
        hub.pop_info(key)


def test_num_classes_of_a_dense_head(training_on):
    head = build_head('RetinaHead', STABLE_AP)
    training_on(classes=('a', 'b', 'c'))
    with pytest.raises(UserError, match=r'num_classes=4 of bbox_head.*Fix: set num_classes=3'):
        head_losses(head)
    # Another training of the process is over before this model is built.
    head_losses(build_head('RetinaHead', STABLE_AP))


@pytest.mark.parametrize('proposals', [False, True])
def test_one_class_of_a_dense_head(training_on, proposals):
    features, truths, metas = make_inputs()
    batch = [DetDataSample(metainfo=meta) for meta in metas]
    head = build_head('RetinaHead', STABLE_AP, num_classes=1)
    training_on(classes=('a', 'b', 'c', 'd'))
    for sample, truth in zip(batch, truths):
        sample.gt_instances = truth.clone()
        if proposals:
            sample.gt_instances.labels = torch.zeros_like(truth.labels)
    if proposals:
        head.loss(features, batch)
        return
    with pytest.raises(UserError, match='num_classes=1 of bbox_head.* 4 cla'):
        head.loss(features, batch)


@pytest.mark.parametrize('listwise', [True, False])
def test_num_classes_of_a_box_head(training_on, listwise):
    head = build_box_head(dict(type='mmrank.StableAPLoss'), listwise, num_classes=80)
    training_on(classes=('a', 'b', 'c'))
    copied = copy.deepcopy(head)  # for other data
    outputs = (torch.randn(4, 80), torch.randn(4, 320), torch.zeros(4, 5))
    targets = (torch.tensor([0, 2, 80, 80]), torch.ones(4), torch.rand(4, 4))
    with pytest.raises(UserError, match=r'the head of StableAPLoss.*Fix: set num_classes=3'):
        head.loss(*outputs, *targets, torch.zeros(4, 4))
    copied.loss(*outputs, *targets, torch.zeros(4, 4))


def test_num_classes_of_other_heads(training_on):
    retrieval = small_retriever.build_head()  # 4 classes
    config = dict(type='mmrank.OneVsRestHead', num_classes=1, in_channels=8)
    binary = MODELS.build({**config, 'loss': dict(type='mmrank.AUCLoss')})
    training_on(classes=tuple('abcdefg'))
    feats = torch.randn(4, 8)
    batch = samples([0, 0, 1, 1])
    with pytest.raises(UserError, match='num_classes=1 of OneVsRestHead'):
        binary.loss(feats, batch)
    training_on(classes=('rest', 'a'))
    binary.loss(feats, batch)
    training_on(classes=tuple('abcdefg'))
    with pytest.raises(UserError, match='num_classes=4 of RetrievalHead.*7'):
        retrieval.loss(feats, batch)


@pytest.mark.parametrize('size', [4, 6])
def test_batch_sizes_of_the_pk_sampler(training_on, size):
    """Also in a training without a hook of mmrank."""
    config = dict(type='mmrank.PKSampler', batch_size=6, num_per_class=2)
    dataset = Labels([0, 1, 2] * 4)
    sampler = DATA_SAMPLERS.build(dict(config, dataset=dataset, seed=0))
    head = small_retriever.build_head()
    labels = next(iter(DataLoader(dataset, size, sampler=sampler)))
    feats = torch.randn(size, 8)
    head.loss(feats, samples(labels))  # a loop of one's own
    training_on()
    if size == 6:
        head.loss(feats, samples(labels))
        return
    with pytest.raises(UserError, match='batch_size=4, but PKSampler draws'):
        head.loss(feats, samples(labels))


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / 'pairs.csv'
    path.write_text(''.join(f'u{i % 4},i{i % 6}\n' for i in range(12)))
    return InteractionDataset(str(path))


def test_loaders_of_pairs(pairs):
    sampler = InBatchPairSampler(pairs, batch_size=6, seed=0)
    loop = SimpleNamespace(dataloader=DataLoader(pairs, batch_size=4, sampler=sampler))
    with pytest.raises(UserError, match=r'batch_size=4, but.*Fix: train_dataloader.batch_size=6'):
        StartCheckHook().before_train(SimpleNamespace(train_loop=loop))
    with pytest.raises(UserError, match='mmrank.pair_collate'):
        next(iter(DataLoader(pairs, batch_size=4)))


@pytest.mark.parametrize(('side', 'number'), [('left', 9), ('right', 3)])
def test_number_of_entities(pairs, training_on, side, number):
    model = MODELS.build(two_tower(**{'left': 4, 'right': 6, side: number}))
    training_on(**pairs.metainfo)
    with pytest.raises(UserError, match=f'model.{side}.num_entities={number}'):
        model(mode='loss', **pairs[0])


def test_views_that_are_not_stacked():
    learner = MODELS.build(
        dict(
            type='mmrank.TwoViewLearner',
            backbone=dict(type='mmrank.SmallConvNet', in_channels=3, channels=4, num_blocks=1),
            loss=dict(type='mmrank.InfoNCELoss'),
            data_preprocessor=dict(mean=[0.0] * 3, std=[1.0] * 3),
        )
    )
    view = torch.zeros(2, 3, 8, 8)
    with pytest.raises(UserError, match="collate_fn=dict.*'default_collate'"):
        learner.data_preprocessor(dict(inputs=[tuple(view), tuple(view)]), True)


class _Images(OneSizeBatches, BaseDataset):
    """The last of three images is larger."""

    def load_data_list(self):
        return [dict(img_path=f'img{i}.jpg') for i in range(3)]

    def prepare_data(self, index):
        size = 9 if index == 2 else 8
        path = self.get_data_info(index)['img_path']
        sample = BaseDataElement(metainfo=dict(img_path=path))
        return dict(inputs=torch.zeros(3, size, 8), data_samples=sample)


@pytest.mark.parametrize(
    ('wrap', 'collate'),
    [(lambda data: data, None), (lambda data: RepeatDataset(data, 2), one_size_collate)],
)
def test_mixed_image_sizes(wrap, collate):
    data = wrap(_Images())
    with pytest.raises(UserError, match=r'img0.jpg is 3x8x8, img2.jpg is 3x9.*CenterCrop'):
        list(DataLoader(data, batch_size=3, collate_fn=collate))
    batch = next(iter(DataLoader(data, batch_size=2, collate_fn=one_size_collate)))
    assert batch['inputs'].shape == (2, 3, 8, 8)


def test_a_loss_without_a_centre_still_finds_boxes(monkeypatch):
    said = []
    monkeypatch.setattr('mmrank.models.score_centre.print_log', lambda text, **_: said.append(text))
    head = build_head('RetinaHead', dict(type='mmrank.SmoothAPLoss', tau=1.0))
    features, _, metas = make_inputs()
    with DefaultScope.overwrite_default_scope('mmdet'), torch.no_grad():
        outs = head.eval()(features)  # logits near -4.6, below the threshold
        for _ in range(2):
            found = head.predict_by_feat(*outs, batch_img_metas=metas)
            assert all(map(len, found))
    assert len(said) == 1
    assert 'SmoothAPLoss has no logit_centre()' in said[0]
    assert head.test_cfg.score_thr == 0.05


def test_a_box_head_says_that_scores_are_low():
    loss = SmoothAPLoss(tau=1.0)
    loss.get_cls_channels(3)
    with pytest.warns(UserWarning, match=r'SmoothAPLoss\.logit_centre\(\)'):
        loss.get_activation(torch.full((2, 3), -6.0))
