"""One contract for every registered model, head, backbone, tower and preprocessor.

Each trains for a step, also in half precision, is saved and loaded, and can be copied. What only
one of them promises is tested in its own file.
"""

import copy
import inspect
import pickle

import pytest
import torch
from mmengine.registry import init_default_scope

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from mmengine.structures import BaseDataElement
from mmpretrain.structures import DataSample
from query_heads import build_query_head, query_inputs
from small_heads import build_head, head_losses, objective
from small_models import (
    CONTRAST_HEAD,
    CONV,
    IN_BATCH_HEAD,
    POOL,
    TEXT,
    dual_encoder,
    table,
    two_tower,
)
from small_rcnn import federated_detector, make_batch
from small_retriever import DIM, build_retriever, samples
from small_retriever import build_head as build_retrieval_head

from mmrank.calibration.calibration_file import Calibration, ClassMap
from mmrank.registry import MODELS

LABELS = [0, 0, 1, 1, 2, 2, 3, 3]
STABLE_AP = dict(type='mmrank.StableAPLoss')
TEXTS = ['a cat', 'two dogs', 'a red car', 'the sea']


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def built(type, **config):
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    model = MODELS.build(dict(type=f'mmrank.{type.removeprefix("mmrank.")}', **config))
    if hasattr(model, 'init_weights'):
        model.init_weights()
    return model


def labelled(n=8):
    return [DataSample(metainfo=dict(sample_idx=i)).set_gt_label(LABELS[i]) for i in range(n)]


def pairs(n=4):
    return [
        BaseDataElement(metainfo=dict(sample_idx=i, image_id=i, text_id=i), text=TEXTS[i])
        for i in range(n)
    ]


def calibrated(tmp_path):
    maps = [ClassMap(str(i), 9, 4, scale=1.0, offset=0.0) for i in range(4)]
    path = Calibration('classification', 'platt', '', tuple(maps)).write(tmp_path / 'map.json')
    head = dict(type='mmrank.OneVsRestHead', num_classes=4, in_channels=8, loss=STABLE_AP)
    return built(
        'CalibratedModel',
        model_type='mmpretrain.ImageClassifier',
        calibration=str(path),
        **dict(backbone=CONV, neck=POOL, head=head),
    )


def of_images_and_texts(loss, head=CONTRAST_HEAD):
    model = built(**dual_encoder(loss, head))
    if hasattr(model.head.loss_module, 'set_pairs'):
        model.head.loss_module.set_pairs(torch.arange(4), torch.arange(4), (4, 4))
    return model


def of_towers(left):
    model = built(**two_tower(left, 6))
    model.pair_loss.set_pairs(torch.arange(6), torch.arange(6), (6, 6))
    return model


def in_batch_head():
    model = built('InBatchRetrievalHead', loss=dict(type='mmrank.InBatchLoss'))
    model.set_class_labels(torch.tensor(LABELS))
    return model


def loss_of_detector(model):
    batch = make_batch()
    for sample in batch['data_samples']:
        sample.set_metainfo(dict(exhaustive_labels=[0, 2]))
    return objective(model(**model.data_preprocessor(batch, True), mode='loss'))


def loss_of_towers(model):
    index = torch.arange(6)
    entities = dict(ids=index)
    left = dict(entities, starts=torch.arange(7), indices=index, values=torch.ones(6))
    batch = dict(rows=index, cols=index, left_index=index, right_index=index)
    return objective(model(mode='loss', left=left, right=entities, **batch))


def loss_of_queries(head):
    args = [x.detach() if torch.is_tensor(x) else x for x in query_inputs('DINOHead')]
    scores = head.cls_branches[0](normal(*args[0].shape[:3], 16))
    return objective(head.loss_by_feat(scores, *args[1:]))


def loss_of_mixup(model):
    with model.mixing(torch.tensor([0, 1, 0, 1])):
        return model(normal(4, 3, 16, 16))[-1].float().square().mean()


def loss_of_views(model):
    views = list(normal(2, 4, 3, 16, 16))
    return objective(model(views, labelled(4), mode='loss'))


def loss_of_preprocessor(model):
    images = torch.randint(255, (4, 3, 8, 8), dtype=torch.uint8)
    views = model(dict(inputs=images, data_samples=None), training=True)['inputs']
    return sum(x.square().mean() for x in views)


def loss_of_images(model):
    return objective(model(normal(8, 3, 16, 16), labelled(), mode='loss'))


def loss_of_pairs(model):
    return objective(model(normal(4, 3, 16, 16), pairs(), mode='loss'))


#: By name: builds the model in a folder, and computes one number to train it on.
CASES = {
    'CalibratedModel': (calibrated, loss_of_images),
    'DeepFeatureMixup': (
        lambda _: built('DeepFeatureMixup', backbone=CONV, stages=('blocks.1',)),
        loss_of_mixup,
    ),
    'EmbeddingRetriever': (lambda _: build_retriever(), loss_of_images),
    'EmbeddingTower': (lambda _: of_towers(6), loss_of_towers),
    'FederatedRoIHead': (lambda _: federated_detector(), loss_of_detector),
    'ImageTextContrastHead': (lambda _: of_images_and_texts('CLIPLoss'), loss_of_pairs),
    'ImageTextDualEncoder': (lambda _: of_images_and_texts('CyCLIPLoss'), loss_of_pairs),
    'ImageTextInBatchHead': (
        lambda _: of_images_and_texts('InBatchLoss', IN_BATCH_HEAD),
        loss_of_pairs,
    ),
    'InBatchRetrievalHead': (
        lambda _: in_batch_head(),
        lambda model: model.loss(normal(4, DIM), samples([0, 1, 0, 1], [0, 2, 1, 3]))['loss'],
    ),
    'ListwiseBBoxHead': (lambda _: federated_detector('cascade'), loss_of_detector),
    'ListwiseHead': (
        lambda _: build_head('ATSSHead', STABLE_AP),
        lambda model: objective(head_losses(model)),
    ),
    'ListwiseHead, queries': (lambda _: build_query_head('DINOHead'), loss_of_queries),
    'MLPTower': (
        lambda _: of_towers(
            dict(type='mmrank.MLPTower', stem=table(6), stem_channels=4, channels=[5, 4])
        ),
        loss_of_towers,
    ),
    'OneVsRestHead': (
        lambda _: built('OneVsRestHead', num_classes=4, in_channels=DIM, loss=STABLE_AP),
        lambda model: model.loss(normal(8, DIM), labelled())['loss'],
    ),
    'RetrievalHead': (
        lambda _: build_retrieval_head(memory=dict(size=20, dim=DIM)),
        lambda model: model.loss(normal(8, DIM), samples(LABELS))['loss'],
    ),
    'ShardedEmbeddingTower': (
        lambda _: of_towers(dict(table(6), type='mmrank.ShardedEmbeddingTower')),
        loss_of_towers,
    ),
    'SmallConvNet': (
        lambda _: MODELS.build(CONV),
        lambda model: model(normal(4, 3, 16, 16))[-1].float().square().mean(),
    ),
    'SparseLinearTower': (
        lambda _: of_towers(dict(type='mmrank.SparseLinearTower', num_features=6, channels=4)),
        loss_of_towers,
    ),
    'TextTransformer': (lambda _: MODELS.build(TEXT), lambda model: model(TEXTS).square().mean()),
    'TwoTower': (lambda _: of_towers(6), loss_of_towers),
    'TwoViewLearner': (
        lambda _: built(
            'TwoViewLearner', backbone=CONV, loss=dict(type='mmrank.ISogCLRLoss', num_samples=8)
        ),
        loss_of_views,
    ),
    'TwoViewPreprocessor': (
        lambda _: built('TwoViewPreprocessor', mean=[90.0] * 3, std=[60.0] * 3),
        loss_of_preprocessor,
    ),
}
# They need a package or files beside these; test_hugging_face_text_encoder.py, test_timm_stages.py
ELSEWHERE = {'HuggingFaceTextEncoder', 'TIMMStages'}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    build, compute = CASES[request.param]

    def value_of(model):
        torch.manual_seed(5)
        return compute(model)

    return lambda: build(tmp_path).train(), value_of


def test_every_registered_model_has_a_case():
    MODELS.import_from_location()
    names = {
        name
        for name, entry in MODELS.module_dict.items()
        if inspect.getmodule(entry).__name__.startswith(('mmrank.models', 'mmrank.imports'))
    }
    assert names == {name.partition(',')[0] for name in CASES} | ELSEWHERE


@pytest.mark.parametrize('half', [False, True])
def test_trains(case, half):
    build, value_of = case
    model = build()
    if half and hasattr(model, 'roi_head'):
        pytest.skip('RoIAlign of mmcv has no bfloat16 on a CPU')
    weights = [p for p in model.parameters() if p.requires_grad]
    with torch.autocast('cpu', dtype=torch.bfloat16, enabled=half):
        value = value_of(model)
    assert value.isfinite()
    assert value.dtype == torch.float32
    if not weights:  # heads of embeddings, and the preprocessor
        return
    value.backward()
    grads = [p.grad for p in weights if p.grad is not None]
    assert all(x.isfinite().all() for x in grads)
    assert any(x.any() for x in grads)


def test_is_saved_loaded_and_copied(case):
    build, value_of = case
    model = build()
    value_of(model)  # moves the state
    fresh = build()
    fresh.load_state_dict(model.state_dict())
    copies = [fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    expected = value_of(model).detach()
    state = model.state_dict()
    for other in copies:
        assert type(other) is type(model)
        assert torch.equal(value_of(other).detach(), expected)
        assert other.state_dict().keys() == state.keys()
        for key, value in other.state_dict().items():
            assert torch.equal(value, state[key]), key
