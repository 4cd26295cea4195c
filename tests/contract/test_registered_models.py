"""One contract for every registered model, head, backbone, tower and preprocessor.

Each trains for a step, also in half precision, is saved and loaded, and can be copied; what sees
the samples of all ranks trains like one process. What only one of them promises is tested in its
own file.
"""

import copy
import inspect
import pickle

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks
from mmengine.registry import init_default_scope
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from labelled import data_samples
from mmengine.structures import BaseDataElement
from query_heads import build_query_head, query_inputs
from small_heads import build_head, head_losses, objective
from small_models import CONTRAST_HEAD, CONV, IN_BATCH_HEAD, POOL, TEXT, dual_encoder, two_tower
from small_rcnn import federated_detector, make_batch
from small_retriever import DIM, build_retriever
from small_retriever import STABLE_AP as OF_QUERIES
from small_retriever import build_head as build_retrieval_head

from mmrank.calibration.calibration_file import Calibration, ClassMap
from mmrank.registry import MODELS

LABELS = [0, 0, 1, 1, 2, 2, 3, 3]
ALL = slice(None)
ISOGCLR = dict(type='mmrank.BimodalISogCLRLoss', num_samples=9)
STABLE_AP = dict(type='mmrank.StableAPLoss')
#: Full after two batches.
MEMORY = dict(size=14, dim=DIM)
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


class OnFeatures(nn.Module):
    """A head on the features that a layer gives, or on two copies of them."""

    def __init__(self, head, copies=1):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(DIM, DIM)
        self.head = head
        self.copies = copies

    def forward(self, feats, data_samples):
        rows = self.layer(feats)
        if self.copies == 1:
            return self.head.loss(rows, data_samples)['loss']
        return self.head.loss(torch.cat([rows, 1.3 * rows + 0.1]), data_samples, 2)['loss']


def pairs():
    return [
        BaseDataElement(metainfo=dict(sample_idx=i, image_id=i, text_id=i), text=text)
        for i, text in enumerate(TEXTS)
    ]


def calibrated(tmp_path):
    maps = [ClassMap(str(i), 9, 4, (0.0, 1.0), (0.0, 1.0)) for i in range(4)]
    path = Calibration('classification', '', tuple(maps)).write(tmp_path / 'map.json')
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
    return OnFeatures(model)


def searching(loss, copies=1, **settings):
    return OnFeatures(build_retrieval_head(loss, **settings), copies)


def loss_of_detector(model):
    batch = make_batch()
    for sample in batch['data_samples']:
        sample.set_metainfo(dict(exhaustive_labels=[0, 2]))
    return objective(model(**model.data_preprocessor(batch, True), mode='loss'))


def loss_of_towers(model, part=ALL):
    index = torch.arange(6)[part]
    order = torch.arange(len(index))
    features = dict(starts=torch.arange(len(index) + 1), indices=index, values=index + 1.0)
    entities = dict(ids=index, **features)
    batch = dict(rows=index, cols=index, left_index=order, right_index=order)
    return objective(model(mode='loss', left=entities, right=entities, **batch))


def loss_of_queries(head):
    args = [x.detach() if torch.is_tensor(x) else x for x in query_inputs('DINOHead')]
    scores = head.cls_branches[0](normal(*args[0].shape[:3], 16))
    return objective(head.loss_by_feat(scores, *args[1:]))


def loss_of_mixup(model):
    with model.mixing(torch.tensor([0, 1, 0, 1])):
        return model(normal(4, 3, 16, 16))[-1].float().square().mean()


def loss_of_views(model, part=ALL):
    views = list(normal(2, 8, 3, 16, 16)[:, part])
    return objective(model(views, data_samples(LABELS)[part], mode='loss'))


def loss_of_preprocessor(model):
    images = torch.randint(255, (4, 3, 8, 8), dtype=torch.uint8)
    views = model(dict(inputs=images, data_samples=None), training=True)['inputs']
    return sum(x.square().mean() for x in views)


def loss_of_images(model, part=ALL):
    return objective(model(normal(8, 3, 16, 16)[part], data_samples(LABELS)[part], mode='loss'))


def loss_of_pairs(model, part=ALL):
    return objective(model(normal(4, 3, 16, 16)[part], pairs()[part], mode='loss'))


def loss_of_features(model, part=ALL):
    return model(normal(8, DIM)[part], data_samples(LABELS)[part])


def loss_of_levels(model, part=ALL):
    levels = [(label // 2, label) for label in LABELS]
    return model(normal(8, DIM)[part], data_samples(levels)[part])


def loss_of_image_pairs(model, part=ALL):
    """Four pairs of one class each; the first half of a batch holds the left images."""
    ids = torch.arange(8).view(4, 2)[part].t().flatten()
    return model(normal(8, DIM)[ids], [data_samples(LABELS)[i] for i in ids])


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
    'ImageTextContrastHead': (lambda _: of_images_and_texts(ISOGCLR), loss_of_pairs),
    'ImageTextDualEncoder': (lambda _: of_images_and_texts('CyCLIPLoss'), loss_of_pairs),
    'ImageTextInBatchHead': (
        lambda _: of_images_and_texts('InBatchLoss', IN_BATCH_HEAD),
        loss_of_pairs,
    ),
    'InBatchRetrievalHead': (lambda _: in_batch_head(), loss_of_image_pairs),
    'ListwiseBBoxHead': (lambda _: federated_detector('cascade'), loss_of_detector),
    'ListwiseHead': (
        lambda _: build_head('ATSSHead', STABLE_AP),
        lambda model: objective(head_losses(model)),
    ),
    'ListwiseHead, queries': (lambda _: build_query_head('DINOHead'), loss_of_queries),
    'OneVsRestHead': (
        lambda _: OnFeatures(
            built('OneVsRestHead', num_classes=4, in_channels=DIM, loss=STABLE_AP)
        ),
        loss_of_features,
    ),
    'RetrievalHead': (lambda _: searching(OF_QUERIES, memory=MEMORY), loss_of_features),
    'RetrievalHead, copies': (
        lambda _: searching(dict(OF_QUERIES, rho='auto', mean_scope='global'), 2, memory=MEMORY),
        loss_of_features,
    ),
    'RetrievalHead, levels': (
        lambda _: searching(dict(type='mmrank.HAPLoss', tau=0.2)),
        loss_of_levels,
    ),
    'RetrievalHead, mixtures': (
        # The first rank draws them.
        lambda _: searching(dict(type='mmrank.RecallAtKLoss', ks=[1, 2], tau=0.2, mixup=True)),
        loss_of_features,
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
#: Their losses see the samples of all ranks; detectors are in test_heads_distributed.py.
GATHERING = [
    *('CalibratedModel', 'EmbeddingRetriever', 'EmbeddingTower', 'ImageTextContrastHead'),
    *('ImageTextDualEncoder', 'ImageTextInBatchHead', 'InBatchRetrievalHead'),
    *('OneVsRestHead', 'SparseLinearTower', 'TwoTower', 'TwoViewLearner'),
    *(name for name in CASES if name.startswith('RetrievalHead')),
]
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
    if not weights:  # the preprocessor
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


def steps(name, folder, part=ALL):
    """Loss, gradients and state of a second batch; the first one set up the state."""
    build, compute = CASES[name]
    model = build(folder).train()
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):  # each rank would have statistics of its own
            layer.eval()
    compute(model, part)
    value = compute(model, part)
    value.backward()
    gradients = [x.grad for x in model.parameters() if x.grad is not None]
    state = [x for key, x in model.state_dict().items() if x.is_floating_point()]
    return value.detach(), gradients, state


def searched_alone(whole, parts):
    """Second losses of a head whose ranks search their own images, and its memory.

    With t = 0 the loss does not depend on the mean positive score. ``whole``: the first batch.
    """
    model = searching(dict(OF_QUERIES, t=0.0, scope='local'), memory=dict(size=40, dim=DIM))
    loss_of_features(model, whole)
    values = [loss_of_features(copy.deepcopy(model), part).detach() for part in parts]
    return values, [x.float() for x in model.head.memory.state_dict().values()]


PARTS = (slice(0, 3), slice(3, None))


def _on_rank(rank, folder):
    import mmrank.models  # noqa: F401  a spawned process has not seen it

    results = []
    for name in GATHERING:
        value, gradients, state = steps(name, folder, PARTS[rank])
        # What DistributedDataParallel does.
        for gradient in gradients:
            dist.all_reduce(gradient)
        results += [value, *(x / 2 for x in gradients), *state]
    values, memory = searched_alone(PARTS[rank], PARTS[rank : rank + 1])
    return results + memory + values


@pytest.mark.processes
def test_two_uneven_ranks_equal_one_process(tmp_path):
    expected = []
    for name in GATHERING:
        value, gradients, state = steps(name, tmp_path)
        assert any(x.any() for x in gradients), name
        expected += [(name, x) for x in (value, *gradients, *state)]
    values, memory = searched_alone(ALL, PARTS)
    expected += [('local', x) for x in memory]
    for results, value in zip(run_on_ranks(_on_rank, 2, tmp_path), values):
        for got, (name, x) in zip(results, [*expected, ('local', value)], strict=True):
            # Entries are sums of terms as large as the largest: its rounding is in all of them.
            largest = max(1.0, float(x.abs().max())) if x.numel() else 1.0
            torch.testing.assert_close(got, x, rtol=1e-4, atol=1e-6 * largest, msg=name)
