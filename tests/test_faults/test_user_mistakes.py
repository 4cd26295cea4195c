"""Mistakes of configs and data end in one message that names the fix."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import small_retriever
import torch

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from labelled import Labels
from mmdet.structures import DetDataSample
from mmengine.config import ConfigDict
from mmengine.dataset import BaseDataset, RepeatDataset
from mmengine.logging import MessageHub
from mmengine.registry import DefaultScope
from mmengine.structures import BaseDataElement
from PIL import Image
from small_box_heads import build_box_head
from small_heads import STABLE_AP, build_head, head_losses, make_inputs
from small_models import two_tower
from small_retriever import samples
from torch.utils.data import DataLoader

from mmrank import losses
from mmrank.datasets import IndexedConcatDataset, one_size_collate
from mmrank.datasets.image_header import image_fault
from mmrank.datasets.interactions.interaction_dataset import InteractionDataset
from mmrank.datasets.interactions.read_csv import read_csv
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.samplers import InBatchPairSampler
from mmrank.datasets.samplers.batch_stream import check_loader
from mmrank.engine.hooks.data_check_hooks import StartCheckHook
from mmrank.errors import UserError
from mmrank.losses import ISogCLRLoss, RankingLoss, SmoothAPLoss, StableAPLoss
from mmrank.losses.options import settings_of
from mmrank.registry import DATA_SAMPLERS, FUNCTIONS, MODELS
from mmrank.training_set import TrainingSet


def test_a_forgotten_delete():
    """``gamma`` of the focal loss that the config inherits from."""
    with pytest.raises(UserError, match='_delete_=True') as caught:
        StableAPLoss(use_sigmoid=True, gamma=2.0, alpha=0.25)
    text = str(caught.value)
    assert 'StableAPLoss does not take gamma=2.0, alpha=0.25' in text
    assert 'score_range' in text  # a name to correct a typing error by
    with pytest.raises(TypeError, match='gamma'):
        SmoothAPLoss(tau=0.1, gamma=2.0)  # its base takes the other settings


REQUIRED = {
    'ErrorDrivenLoss': dict(delta=1.0),
    'SOAPLoss': dict(num_samples=5),
    'SoDeepLoss': dict(sorter='no_file.pt'),
    'SumLoss': dict(losses=[SmoothAPLoss()]),
}


def test_every_loss_explains_its_settings():
    for name in losses.__all__:
        cls = getattr(losses, name)
        # An adapter passes what it does not know on to the other library.
        if name.endswith('Loss') and name != 'PMLLoss':
            with pytest.raises(UserError, match=f'{name} does not take'):
                cls(**REQUIRED.get(name, {}), no_setting=1)


def test_a_loss_of_the_user_inherits_the_message():
    class Mine(RankingLoss):
        def __init__(self, margin: float = 1.0, **kwargs) -> None:
            super().__init__(**kwargs)
            self.margin = margin

    assert settings_of(Mine)[:2] == ['margin', 'num_classes']
    assert Mine(margin=2.0, mode='per_class').margin == 2.0
    with pytest.raises(UserError, match='Mine does not take alpha=0.25'):
        Mine(alpha=0.25)


def test_an_unregistered_loss_names_the_import():
    config = dict(type='mmrank.OneVsRestHead', num_classes=3, in_channels=4, loss=None)
    with pytest.raises(KeyError, match='custom_imports') as caught:
        MODELS.build({**config, 'loss': dict(type='mmrank.StableAPLos')})
    assert "there is 'mmrank.StableAPLoss'" in str(caught.value)
    with pytest.raises(KeyError, match='custom_imports'):
        MODELS.build(two_tower(2, 2, dict(type='MyLoss')))


@pytest.mark.parametrize('name', ['RetinaHead', 'ATSSHead', 'FCOSHead'])
def test_a_ranking_loss_in_a_stock_dense_head(name):
    for loss in (
        dict(type='mmrank.StableAPLoss'),
        dict(type='mmrank.SumLoss', losses=[dict(type='mmrank.APLoss')]),
    ):
        with pytest.raises(UserError, match='ListwiseHead') as caught:
            build_head(name, loss, listwise=False)
        assert f"head_type='mmdet.{name}'" in str(caught.value)


def test_a_head_that_gathers_itself_may_build_one():
    class BaseDenseHead(torch.nn.Module):
        """Named as mmdet's."""

        def __init__(self) -> None:
            super().__init__()
            self.loss_cls = StableAPLoss()

    class Gathering(BaseDenseHead):
        gathers_scores = True

    with pytest.raises(UserError, match='calls its loss once for each level'):
        BaseDenseHead()
    assert isinstance(Gathering().loss_cls, StableAPLoss)


def test_a_loss_put_into_a_stock_head_is_refused_at_its_first_call():
    class DETRHead(torch.nn.Module):
        """Named as mmdet's."""

        def forward(self, scores, labels):
            return self.loss_cls(scores, labels, avg_factor=1)

    scores = torch.zeros(2, 3)
    labels = torch.tensor([0, 3])
    head = DETRHead()
    head.loss_cls = StableAPLoss()
    with pytest.raises(UserError, match='once for each layer of its decoder'):
        head(scores, labels)
    DETRHead.gathers_scores = True
    assert head(scores, labels).isfinite()


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
    with pytest.raises(UserError, match='num_classes=4 of bbox_head') as error:
        head_losses(head)
    assert '3 classes (a, b, c). Fix: set num_classes=3' in str(error.value)
    # Another training of the process is over before this model is built.
    head_losses(build_head('RetinaHead', STABLE_AP))


def test_one_class_of_a_dense_head(training_on):
    features, truths, metas = make_inputs()
    batch = [DetDataSample(metainfo=meta) for meta in metas]

    def loss(proposals=False):
        head = build_head('RetinaHead', STABLE_AP, num_classes=1)
        training_on(classes=('a', 'b', 'c', 'd'))
        for sample, truth in zip(batch, truths):
            sample.gt_instances = truth.clone()
            if proposals:
                sample.gt_instances.labels = torch.zeros_like(truth.labels)
        return head.loss(features, batch)

    with pytest.raises(UserError, match='num_classes=1 of bbox_head.* 4 cla'):
        loss()
    loss(proposals=True)


@pytest.mark.parametrize('listwise', [True, False])
def test_num_classes_of_a_box_head(training_on, listwise):
    head = build_box_head(dict(type='mmrank.StableAPLoss'), listwise, num_classes=80)
    training_on(classes=('a', 'b', 'c'))
    copied = copy.deepcopy(head)  # for other data
    outputs = (torch.randn(4, 80), torch.randn(4, 320), torch.zeros(4, 5))
    targets = (torch.tensor([0, 2, 80, 80]), torch.ones(4), torch.rand(4, 4))
    with pytest.raises(
        UserError,
        match=r'num_classes=80 of bbox_head, the head of StableAPLoss, .* 3 '
        r'classes \(a, b, c\). Fix: set num_classes=3',
    ):
        head.loss(*outputs, *targets, torch.zeros(4, 4))
    copied.loss(*outputs, *targets, torch.zeros(4, 4))


def test_num_classes_of_other_heads(training_on):
    retrieval = small_retriever.build_head()  # 4 classes
    one_vs_rest = MODELS.build(
        dict(
            type='mmrank.OneVsRestHead',
            num_classes=200,
            in_channels=8,
            loss=dict(type='mmrank.StableAPLoss', mode='per_class'),
        )
    )
    config = dict(type='mmrank.OneVsRestHead', num_classes=1, in_channels=8)
    binary = MODELS.build({**config, 'loss': dict(type='mmrank.AUCLoss')})
    training_on(classes=tuple('abcdefg'))
    feats, batch = torch.randn(4, 8), samples([0, 0, 1, 1])
    with pytest.raises(UserError, match='num_classes=1 of OneVsRestHead'):
        binary.loss(feats, batch)
    training_on(classes=('rest', 'a'))
    binary.loss(feats, batch)
    training_on(classes=tuple('abcdefg'))
    with pytest.raises(UserError, match='num_classes=4 of RetrievalHead.*7'):
        retrieval.loss(feats, batch)
    with pytest.raises(UserError, match='num_classes=200 of OneVsRestHead'):
        one_vs_rest.loss(feats, batch)


def test_the_training_set_is_compared_once(training_on):
    known = TrainingSet()
    training_on(classes=('a', 'b'))
    known.check_classes(2, 'the head')
    known.check_classes(3, 'the head')
    assert known.metainfo() == {}
    assert pickle.loads(pickle.dumps(known)).metainfo() == {}


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


def test_batch_sizes_of_loader_and_sampler(pairs):
    sampler = InBatchPairSampler(pairs, batch_size=6, seed=0)
    check_loader(DataLoader(pairs, batch_size=6, sampler=sampler))
    check_loader(DataLoader(pairs, batch_size=5))
    loop = SimpleNamespace(dataloader=DataLoader(pairs, batch_size=4, sampler=sampler))
    with pytest.raises(UserError, match='batch_size=4, but') as caught:
        StartCheckHook().before_train(SimpleNamespace(train_loop=loop))
    assert 'Fix: train_dataloader.batch_size=6' in str(caught.value)


def test_a_forgotten_collate_function(pairs):
    with pytest.raises(UserError, match='mmrank.pair_collate'):
        next(iter(DataLoader(pairs, batch_size=4)))
    with pytest.raises(KeyError, match='nothing'):
        pairs[0]['nothing']


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
    batch = dict(inputs=[view, view], data_samples=[])
    whole = learner.data_preprocessor(batch, True)
    assert len(whole['inputs']) == 2
    with pytest.raises(UserError, match="collate_fn=dict.*'default_collate'"):
        learner.data_preprocessor(dict(inputs=[tuple(view), tuple(view)]), True)


@pytest.mark.parametrize(('side', 'number'), [('left', 9), ('right', 3)])
def test_number_of_entities(pairs, training_on, side, number):
    size = dict(left=4, right=6)
    size[side] = number
    model = MODELS.build(two_tower(**size))
    training_on(**pairs.metainfo)
    with pytest.raises(UserError, match=f'model.{side}.num_entities={number}'):
        model(mode='loss', **pairs[0])


def test_batches_of_one_sample():
    loss = ISogCLRLoss(num_samples=10)
    views = torch.randn(3, 2, 4)
    index = torch.tensor([0, 1])

    def step(size):
        return loss(views[0, :size], views[1, :size], index[:size])

    step(1)  # what is left over at the end of an epoch
    step(2)
    step(1)
    with pytest.raises(UserError, match='batch_size of at least 2'):
        step(1)
    loss.eval()
    step(1)
    step(1)


def test_ratings_are_no_positives(tmp_path):
    path = tmp_path / 'rated.csv'
    path.write_text('u1,i1,5\nu1,i2,1\nu2,i1,4\n')
    with pytest.raises(ValueError, match='min_rating=4') as caught:
        read_csv(path)
    assert 'rated.csv:2: the file holds ratings, such as 5 and 1,' in str(caught.value)
    assert len(read_csv(path, min_rating=4)) == 2
    assert len(read_csv(path, min_rating=1)) == 3
    path.write_text('u1,i1,1\nu1,i2,1\nu2,i1,1\n')
    assert len(read_csv(path)) == 3
    path.write_text('user,item,timestamp\nu1,i1,978\nu1,i2,979\n')
    assert len(read_csv(path)) == 2
    path.write_text('u,i,3\n' * 600 + 'u2,i2,4\n')  # beyond the first chunk
    with pytest.raises(ValueError, match='min_rating'):
        read_csv(path)


class _Wrapped(OneSizeBatches, BaseDataset):
    def load_data_list(self):
        return [dict(img_path=f'img{i}.jpg') for i in range(3)]

    def prepare_data(self, index):
        size = 9 if index == 2 else 8
        path = self.get_data_info(index)['img_path']
        sample = BaseDataElement(metainfo=dict(img_path=path))
        return dict(inputs=torch.zeros(3, size, 8), data_samples=sample)


@pytest.mark.parametrize(
    ('wrap', 'collate'),
    [
        (lambda data: data, None),
        (lambda data: RepeatDataset(data, 2), one_size_collate),
        (lambda data: IndexedConcatDataset([data]), None),
    ],
)
def test_mixed_image_sizes(wrap, collate):
    assert FUNCTIONS.get('mmrank.one_size_collate') is one_size_collate
    data = wrap(_Wrapped())
    with pytest.raises(UserError, match='img0.jpg is 3x8x8, img2.jpg is 3x9x8.*CenterCrop'):
        list(DataLoader(data, batch_size=3, collate_fn=collate))
    batch = next(iter(DataLoader(data, batch_size=2, collate_fn=one_size_collate)))
    assert batch['inputs'].shape == (2, 3, 8, 8)


@pytest.mark.parametrize('ending', ['jpg', 'png'])
def test_truncated_images_are_named(tmp_path, ending):
    rng = np.random.default_rng(0)
    path = tmp_path / f'image.{ending}'
    Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(path)
    assert image_fault(path) is None
    path.write_bytes(path.read_bytes()[:-2000])
    assert 'cut off or damaged' in image_fault(path)


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


def test_a_box_head_without_a_centre_still_finds_boxes(monkeypatch):
    said = []
    monkeypatch.setattr('mmrank.models.score_centre.print_log', lambda text, **_: said.append(text))
    head = build_box_head(dict(type='mmrank.SmoothAPLoss', tau=1.0))
    rois = torch.tensor([[0.0, 8, 8, 40, 40], [0, 50, 50, 90, 90]])
    for cfg, found in ((0.05, 2), (0.0, 2)):
        cfg = ConfigDict(score_thr=cfg, nms=dict(type='nms', iou_threshold=0.5), max_per_img=2)
        head.loss_cls._warned_of_low_scores = False
        with pytest.warns(UserWarning, match='logit_centre'):
            (results,) = head.predict_by_feat(
                rois=(rois,),
                cls_scores=(torch.full((2, 3), -6.0),),
                bbox_preds=(torch.zeros(2, 12),),
                batch_img_metas=[dict(img_shape=(96, 96))],
                rcnn_test_cfg=cfg,
            )
        assert len(results) == found
    assert len(said) == 1
    assert 'SmoothAPLoss has no logit_centre()' in said[0]


def test_a_box_head_says_that_scores_are_low():
    loss = SmoothAPLoss(tau=1.0)
    loss.get_cls_channels(3)
    with pytest.warns(UserWarning, match=r'SmoothAPLoss\.logit_centre\(\)'):
        loss.get_activation(torch.full((2, 3), -6.0))
