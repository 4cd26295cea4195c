"""Every Python block of READMEs and pages does what its reader expects.

Trainings use the optimiser of the block's base config, or mmpretrain's stock one where there is no
base, on small made-up data.
"""

import copy
import inspect

import numpy as np
import pytest
import torch
from docs_blocks import ROOT, values_of
from mmengine.registry import HOOKS, METRICS, MODELS, VISBACKENDS, init_default_scope
from readme_snippets import (
    all_snippets,
    config_of,
    glyphs,
    narrow,
    snippet,
    stock_optimiser,
    tiny_detector,
    train_detector,
    train_model,
    write_images,
)
from torch.nn.functional import normalize

from mmrank.functional import average_precision, retrieval_metrics
from mmrank.losses import HeadLoss

START = 'docs/pages/get_started.md'
TOOLS = 'docs/pages/tools.md'
DETECTOR = 'docs/pages/users/detector.md'
IMAGE_TEXT = 'docs/pages/users/image_text.md'
LONG_TAIL = 'docs/pages/users/long_tail.md'
OTHER_DETECTORS = 'docs/pages/users/other_detectors.md'
COCOS_METRIC = 'docs/pages/cocos_metric.md'
PYTORCH = 'docs/pages/users/pytorch.md'
RECOMMENDATION = 'docs/pages/users/recommendation.md'
RETRIEVAL = 'docs/pages/users/retrieval.md'
HOME = 'docs/pages/index.md'
SCALING = 'docs/pages/scaling.md'
CALIBRATION = 'docs/pages/calibration_and_deployment.md'
SENTENCES = 'docs/pages/users/sentence_transformers.md'
IN_BATCH = 'configs/in_batch/README.md'
SELF_SUPERVISED = 'docs/pages/users/self_supervised.md'
# README or page and a text that is in one of its blocks alone; the tests below name each of them.
BLOCKS = [
    ('README.md', "_base_ = 'mmdet::atss"),
    (DETECTOR, "_base_ = 'mmdet::faster_rcnn"),
    # tests/test_datasets/test_lvis_dataset.py runs it.
    (DETECTOR, 'mmrank.LVISDataset'),
    (RETRIEVAL, 'mmrank.EmbeddingRetriever'),
    (SELF_SUPERVISED, 'mmrank.TwoViewLearner'),
    (IMAGE_TEXT, 'mmrank.ImageTextDualEncoder'),
    (LONG_TAIL, 'mmrank.OneVsRestHead'),
    (RETRIEVAL, 'recall_at=(1, 10, 100, 1000)'),
    (TOOLS, 'mmrank.AtomicCheckpointHook'),
    # tests/test_tools/test_new_config.py trains with it.
    (TOOLS, "save_best='coco/bbox_mAP'"),
    (TOOLS, 'TensorboardVisBackend'),
    (PYTORCH, 'stable_ap_loss(scores, is_positive'),
    (COCOS_METRIC, 'graded_average_precision'),
    (START, '/path/to/configs'),
    ('README.md', 'StableAPLoss(num_classes=5'),
    (DETECTOR, "_base_ = 'mmdet::atss"),
    # tests/test_adapters/test_detection_transformers.py and test_detectors.py run these, but the
    # last, which needs data and takes minutes.
    (OTHER_DETECTORS, 'load_ranking_state'),
    (OTHER_DETECTORS, 'retinanet_resnet50_fpn'),
    (OTHER_DETECTORS, "kind = 'RTDetr'"),
    (OTHER_DETECTORS, 'build_trainer'),
    # tests/test_adapters/test_clip_models.py runs these.
    (IMAGE_TEXT, 'use_contrastive_loss'),
    (SENTENCES, 'InformationRetrievalEvaluator'),
    (PYTORCH, 'EmbeddingLoss(StableAPLoss())'),
    (RECOMMENDATION, "_base_ = 'configs/tutorials"),
    (HOME, "_base_ = 'mmdet::atss"),
    # tests/test_testing/test_checks.py runs these.
    ('docs/pages/loss_checks.md', 'check_loss(partial('),
    ('docs/pages/loss_checks.md', '@parametrize_with_checks'),
    # tests/test_tools/test_calibrate.py builds a model of these lines.
    (CALIBRATION, 'mmrank.CalibratedModel'),
    # tests/test_docs/test_practice_pages.py runs these.
    (SCALING, 'ISogCLRLoss'),
    (SCALING, 'grad_cache'),
    # tests/test_tools/test_launchers.py waits so long for a lost machine.
    (SCALING, 'dist_cfg=dict(backend'),
    (CALIBRATION, 'LogisticRegression'),
    (CALIBRATION, 'torch.export'),
    # tests/test_tools/test_stock_deployment.py runs it.
    (CALIBRATION, 'torch.onnx'),
    ('configs/clip/README.md', 'mmrank.ImageTextDualEncoder'),
    (IN_BATCH, 'refined=True'),
    ('configs/isogclr/README.md', 'mmrank.TwoViewLearner'),
    ('configs/long_tail/README.md', 'mmrank.OneVsRestHead'),
    ('configs/metric_learning/README.md', 'mmrank.PMLLoss'),
]
SGD = '_base_/schedules/imagenet_bs256.py'
GREY = dict(mean=[127.5] * 3, std=[127.5] * 3)


def test_every_block_is_known():
    assert len(BLOCKS) == len(all_snippets())
    mark = "_base_ = 'mmdet::atss"
    assert snippet(HOME, mark) == snippet('README.md', mark)
    for readme, mark in BLOCKS:
        assert snippet(readme, mark)


def test_loggers_of_the_page_are_there_and_take_their_options(tmp_path):
    cfg = config_of(snippet(TOOLS, 'TensorboardVisBackend'), tmp_path)
    assert len(cfg.visualizer.vis_backends) == 4
    for backend in cfg.visualizer.vis_backends:
        options = {key: value for key, value in backend.items() if key != 'type'}
        inspect.signature(VISBACKENDS.get(backend.type)).bind(save_dir='logs', **options)


def test_lines_of_the_refined_softmax_fit_the_config(tmp_path):
    base = ROOT / 'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'
    text = snippet(IN_BATCH, 'refined=True')
    cfg = config_of(f"_base_ = '{base}'\n{text}", tmp_path)
    loss = MODELS.build(cfg.model.loss)
    assert (type(loss).__name__, loss.refined) == ('InBatchSoftmaxLoss', True)
    sampler = cfg.train_dataloader.sampler
    assert sampler.type == 'mmrank.InBatchPairSampler'
    assert sampler.batch_size + sampler.num_uniform == cfg.train_dataloader.batch_size


# Detection. The argument of h is looked at in every iteration.

MONITOR = "\ncustom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=1)]\n"
RETINANET = f"""
_base_ = ['{ROOT}/configs/_base_/models/retinanet_r18_fpn_small.py',
          'mmdet::_base_/schedules/schedule_1x.py']
optim_wrapper = dict(optimizer=dict(lr=0.01))
"""


def detector_text(kind):
    """The README's own lines, and its base alone."""
    if kind == 'faster_rcnn':
        text = snippet(DETECTOR, "_base_ = 'mmdet::faster_rcnn")
        return text + MONITOR, text.splitlines()[0]
    text = snippet('README.md', "_base_ = 'mmdet::atss")
    base, lines = text.split('\n', 1)
    if kind == 'retinanet':
        base = RETINANET
        lines = lines.replace('ATSSHead', 'RetinaHead')
    return f'{base}\n{lines}{MONITOR}', base


def trained(text, kind, images, folder, iterations, warm_up=True):
    folder.mkdir()
    cfg = config_of(text, folder)
    assert cfg.optim_wrapper.optimizer.type == 'SGD'
    if kind != 'retinanet':
        tiny_detector(cfg)
    return train_detector(cfg, images, folder, iterations, warm_up)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['retinanet', 'atss', 'faster_rcnn'])
def test_detector_by_the_lines_of_the_readme_keeps_up(kind, tmp_path):
    """Stock SGD, 210 iterations on 12 images, AP50 of the same images."""
    pytest.importorskip('mmdet')
    images = write_images(tmp_path / 'data')
    ours, stock = detector_text(kind)
    found, history = trained(ours, kind, images, tmp_path / 'ours', 210)
    rival, _ = trained(stock, kind, images, tmp_path / 'stock', 210)
    assert rival > 10
    assert found >= 0.9 * rival, (found, rival)
    arguments = [v for k, v in history.items() if k.endswith('argument')]
    assert len(arguments) == (2 if kind == 'faster_rcnn' else 1)
    for values in arguments:
        # As the log shows it, a mean of ten iterations: an easy batch of four of the twelve images
        # has a hundredth of the mean risk at the end.
        shown = np.convolve(values, np.full(10, 0.1), mode='valid')
        assert shown.min() >= 0.03
        assert values.max() <= 10


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['retinanet', 'faster_rcnn'])
def test_detector_by_the_lines_of_the_readme_learns(kind, tmp_path):
    pytest.importorskip('mmdet')
    images = write_images(tmp_path / 'data')
    text, _ = detector_text(kind)
    # The warm-up of 500 iterations would hide what 15 of them teach.
    _, history = trained(text, kind, images, tmp_path / 'ours', 15, warm_up=False)
    risks = [v for k, v in history.items() if k.endswith('risk')]
    for values in risks:
        assert values[-3:].mean() < 0.8 * values[:3].mean()
    assert all(v.min() > 0.1 and v.max() < 10 for k, v in history.items() if k.endswith('argument'))


# Images of invented characters, batches in memory.


def batches_of(number, make, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [make(g) for _ in range(number)]


def sample(label=None, score=None, **fields):
    from mmpretrain.structures import DataSample

    made = DataSample(metainfo={k: v for k, v in fields.items() if k != 'text'})
    if label is not None:
        made.set_gt_label(label)
    if score is not None:
        made.set_gt_score(score)
    if 'text' in fields:
        made.set_field(fields['text'], 'text')
    return made


def built(config, preprocessor='mmpretrain.ClsDataPreprocessor'):
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    narrow(config)
    config['data_preprocessor'] = dict(type=preprocessor, **GREY)
    model = MODELS.build(config)
    model.init_weights()
    return model


def retrieval_map(embed, classes):
    """6 drawings of each class search each other; mAP in percent."""
    labels = torch.as_tensor(classes).repeat_interleave(6)
    images = glyphs(labels, 10 + torch.arange(len(labels)) % 6)
    with torch.no_grad():
        feats = normalize(embed(images), dim=1)
    return 100 * retrieval_metrics(feats, labels).summary()['mAP']


def retriever_map(model):
    model.eval()
    data = model.data_preprocessor
    return retrieval_map(
        lambda x: model.extract_feat(data(dict(inputs=x))['inputs']), range(20, 30)
    )


def drawings_of_classes(g):
    labels = torch.randperm(20, generator=g)[:8].repeat_interleave(4)
    images = glyphs(labels, torch.randint(0, 10, (32,), generator=g))
    return dict(
        inputs=images, data_samples=[sample(int(c), sample_idx=k) for k, c in enumerate(labels)]
    )


@pytest.mark.parametrize(
    'loss', ['ranking', pytest.param('metric_learning', marks=pytest.mark.slow)]
)
def test_retrieval(loss):
    """Characters that were not trained on."""
    pytest.importorskip('mmpretrain')
    values = values_of(snippet(RETRIEVAL, 'mmrank.EmbeddingRetriever'))
    if loss == 'metric_learning':
        pytest.importorskip('pytorch_metric_learning')
        text = snippet('configs/metric_learning/README.md', 'PMLLoss')
        values['model']['head']['loss'] = values_of(text)['loss']
    # Weights that nobody trained have no statistics worth keeping.
    assert values['model'].pop('freeze_bn')
    model = built(values['model'])
    before = retriever_map(model)
    logs = train_model(model, stock_optimiser(SGD), batches_of(60, drawings_of_classes))
    after = retriever_map(model)
    assert after > before + 10, (before, after)
    assert after > 45
    if loss == 'ranking':
        found = _ranking(model).diagnostics
        assert found['argument'] < 10
        # Small only where rho has risen to the paper's n-/n+: the batches are learnt.
        assert found['argument'] > 0.03 or found['rho'].item() == pytest.approx(28 / 3)
    first, last = (sum(x['loss'] for x in part) for part in (logs[:10], logs[-10:]))
    assert last < first
    assert METRICS.build(values['test_evaluator'])


def _ranking(model):
    (loss,) = [m for m in model.modules() if isinstance(m, HeadLoss)]
    return loss


@pytest.mark.parametrize(
    'readme', [LONG_TAIL, pytest.param('configs/long_tail/README.md', marks=pytest.mark.slow)]
)
def test_multi_label_classification(readme):
    """Two of 14 characters on top of each other; tested on new drawings."""
    pytest.importorskip('mmpretrain')
    values = values_of(snippet(readme, 'mmrank.OneVsRestHead'))
    model = built(values['model'])

    def batch(g, low=0, n=48):
        labels = torch.randint(0, 14, (2, n), generator=g)
        number = low + torch.randint(0, 8, (2, n), generator=g)
        images = torch.maximum(*map(glyphs, labels, number))
        target = torch.zeros(n, 14).scatter_(1, labels.t(), 1)
        return dict(inputs=images, data_samples=[sample(score=t) for t in target])

    def mean_ap():
        model.eval()
        data = batch(torch.Generator().manual_seed(9), low=8, n=150)
        truth = torch.stack([s.gt_score for s in data['data_samples']]).bool()
        with torch.no_grad():
            found = model.val_step(data)
        scores = torch.stack([s.pred_score for s in found])
        values = [average_precision(scores[:, c], truth[:, c]) for c in range(14)]
        return 100 * torch.stack(values).mean().item()

    before = mean_ap()
    risks = []
    optimiser = stock_optimiser(SGD)
    for part in range(2):
        train_model(model, optimiser, batches_of(40, batch, seed=part))
        risks.append(_ranking(model).diagnostics['risk'].item())
    after = mean_ap()
    assert after > before + 15, (before, after)
    assert after > 35
    assert risks[1] < risks[0]
    assert 0.03 < _ranking(model).diagnostics['argument'] < 10
    assert METRICS.build(values['val_evaluator'])
    for hook in values.get('custom_hooks', []):
        assert HOOKS.build(hook)


@pytest.mark.parametrize(
    'readme', [SELF_SUPERVISED, pytest.param('configs/isogclr/README.md', marks=pytest.mark.slow)]
)
def test_self_supervised(readme):
    """Two drawings of a character are its views; no label is used."""
    pytest.importorskip('mmpretrain')
    values = values_of(snippet(readme, 'mmrank.TwoViewLearner'))
    values['model']['loss']['num_samples'] = 200
    model = built(values['model'], 'mmpretrain.SelfSupDataPreprocessor')

    def batch(g):
        index = torch.randperm(200, generator=g)[:64]
        # Five samples of each of 40 characters, two drawings a sample.
        views = [glyphs(index % 40, 2 * (index // 40) + view) for view in (0, 1)]
        return dict(inputs=views, data_samples=[sample(sample_idx=int(k)) for k in index])

    def found():
        model.eval()

        def embed(images):
            images = (images.float() - 127.5) / 127.5
            return torch.stack([s.feature for s in model.predict(images)])

        return retrieval_map(embed, range(40, 50))

    before = found()
    optimiser = stock_optimiser('simclr/simclr_resnet50_8xb32-coslr-200e_in1k.py')
    logs = train_model(model, optimiser, batches_of(60, batch))
    after = found()
    assert after > before + 5, (before, after)
    assert logs[-1]['loss'] < logs[0]['loss']
    for hook in values['custom_hooks']:
        assert HOOKS.build(hook)


@pytest.mark.parametrize(
    'readme', [IMAGE_TEXT, pytest.param('configs/clip/README.md', marks=pytest.mark.slow)]
)
def test_images_and_texts(readme):
    pytest.importorskip('mmpretrain')
    values = values_of(snippet(readme, 'mmrank.ImageTextDualEncoder'))
    config = values['model']
    config['text_encoder'] = dict(type='mmrank.TextTransformer', channels=32, num_layers=1)
    config['head']['loss']['num_samples'] = 200
    model = built(config)
    words = [
        f'{a} {b}'
        for a in ('old', 'new', 'red', 'odd')
        for b in ('cat', 'dog', 'hat', 'sun', 'map')
    ]

    def batch(g):
        index = torch.randperm(200, generator=g)[:40]
        labels = index % 20
        return dict(
            inputs=glyphs(labels, torch.randint(0, 10, (40,), generator=g)),
            data_samples=[
                sample(sample_idx=int(k), image_id=int(k), text_id=int(k), text=words[int(c)])
                for k, c in zip(index, labels)
            ],
        )

    def right():
        model.eval()
        labels = torch.arange(20).repeat(3)
        images = glyphs(labels, 12 + torch.arange(60) // 20)
        with torch.no_grad():
            images = model.data_preprocessor(dict(inputs=images))['inputs']
            scores = model.embed_images(images) @ model.embed_texts(words).t()
        return 100 * (scores.argmax(1) == labels).double().mean().item()

    optimiser = stock_optimiser('_base_/schedules/imagenet_bs1024_adamw_swin.py')
    logs = train_model(model, optimiser, batches_of(60, batch))
    assert right() > 25  # chance is 5
    assert logs[-1]['loss'] < logs[0]['loss']
    assert METRICS.build(values['val_evaluator'])


# The rest.


def test_metrics_and_hooks_build():
    text = snippet(RETRIEVAL, 'recall_at=(1, 10, 100, 1000)')
    assert METRICS.build(values_of(text)['val_evaluator'])
    values = values_of(snippet(TOOLS, 'mmrank.AtomicCheckpointHook'))
    assert HOOKS.build(values['default_hooks']['checkpoint'])
    for hook in values['custom_hooks']:
        assert HOOKS.build(hook)


def test_library_block_trains():
    """Its loss, minimised with plain SGD, ranks the positives first."""
    values = values_of(snippet(PYTORCH, 'stable_ap_loss(scores, is_positive'))
    gradient, is_positive = values['scores'].grad, values['is_positive']
    assert values['loss'].isfinite()
    assert (gradient[is_positive] < 0).any()
    assert (gradient[~is_positive] > 0).any()


def test_the_quality_raises_the_ap_at_each_threshold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = values_of(snippet(COCOS_METRIC, 'graded_average_precision'))
    ranked, graded = (values['by_threshold'][quality] for quality in (0, 0.9))
    assert (graded > ranked).all()
    for quality, text in ((0, '0.26'), (0.9, '0.36')):
        metric = values['metric'][quality]
        torch.testing.assert_close(metric, values['by_threshold'][quality].mean())
        assert f'{metric:.2f}' == text
    assert (tmp_path / 'ranking_by_iou.png').stat().st_size > 10_000


def test_a_config_inherits_by_path(tmp_path):
    text = snippet(START, '/path/to/configs')
    cfg = config_of(text.replace('/path/to', str(ROOT)), tmp_path)
    assert cfg.model.bbox_head.num_classes == 3


def test_blocks_for_a_plain_loop_have_gradients():
    values = values_of(snippet('README.md', 'StableAPLoss(num_classes=5'))
    assert values['scores'].grad.abs().sum() > 0
    values = values_of(snippet(PYTORCH, 'EmbeddingLoss(StableAPLoss())'))
    assert (values['scores'].grad.abs().sum(0) > 0).all()
    assert values['embeddings'].grad.abs().sum() > 0


def test_detector_for_own_classes(tmp_path):
    pytest.importorskip('mmdet')
    cfg = config_of(snippet(DETECTOR, "_base_ = 'mmdet::atss"), tmp_path)
    tiny_detector(cfg)
    cfg.model.bbox_head.num_classes = 3
    init_default_scope('mmdet')
    model = MODELS.build(cfg.model)
    assert model.bbox_head.loss_cls.loss.num_columns == 3
    for split in ('train', 'val', 'test'):
        data = cfg[f'{split}_dataloader'].dataset
        assert data.data_root == 'data/mine/'
        assert data.metainfo.classes == ('cat', 'dog', 'cow')
    assert cfg.val_evaluator.ann_file.startswith('data/mine/')
    assert cfg.test_evaluator.type == 'CocoMetric'


def test_recommendation_for_own_data(tmp_path):
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    text = snippet(RECOMMENDATION, "_base_ = 'configs/tutorials")
    cfg = config_of(text, tmp_path)
    model = MODELS.build(cfg.model)
    assert [p.shape for p in model.parameters()] == [(6018, 64), (3018, 64)]
    loader = cfg.train_dataloader
    assert loader.batch_size == loader.sampler.batch_size == 2048
    for split in ('train', 'val', 'test'):
        assert cfg[f'{split}_dataloader'].dataset.data_root == 'data/mine/'
