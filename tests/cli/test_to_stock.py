"""A detector leaves mmrank: files of mmdet alone show the same boxes, where no mmrank is."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip('mmdet')
import docs_blocks
from covered_heads import MORE_HEADS, build_covered
from mmdet.apis import inference_detector
from mmdet.registry import MODELS as MMDET_MODELS
from mmengine.config import Config
from mmengine.hooks import EMAHook
from mmengine.registry import DefaultScope
from query_heads import (
    QUERY_HEADS,
    build_query_head,
    query_head_config,
    query_inputs,
    shown_queries,
)
from shown_boxes import (
    FOLDED,
    NOT_FOLDED,
    assert_same_boxes,
    build_spread,
    predict_covered,
    set_centre,
    spread_scores,
)
from small_heads import HEADS, STABLE_AP, head_config
from small_rcnn import build_detector, detector_config
from small_rcnn import make_batch as rcnn_batch
from tiny_tool_run import ROOT

from mmrank import registry
from mmrank.errors import UserError
from mmrank.models import ListwiseHead
from mmrank.registry import MODELS
from stock_config import stock_config
from to_stock import stock_paths, write_stock_model

PER_CLASS = dict(STABLE_AP, mode='per_class')
UNCENTRED = dict(type='mmrank.SmoothAPLoss', tau=1.0)


def config_of(model, **others):
    return Config(dict(default_scope='mmdet', model=model, **others))


def convert(folder, cfg, model, **checkpoint):
    """The stock model in the files that a conversion writes."""
    weights = folder / 'training.pth'
    torch.save(dict(state_dict=model.state_dict(), **checkpoint), weights)
    write_stock_model(cfg, str(weights), folder / 'stock')
    return load_stock(folder / 'stock')


def load_stock(out):
    config, weights = stock_paths(out)
    for path in (config, weights):
        assert b'mmrank' not in path.read_bytes()
    cfg = Config.fromfile(config)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        stock = MMDET_MODELS.build(cfg.model)
    content = torch.load(weights, weights_only=True)
    assert set(content) == {'meta', 'state_dict'}
    stock.load_state_dict(content['state_dict'])
    assert not any(type(part).__module__.startswith('mmrank') for part in stock.modules())
    return stock.eval()


def covered_config(name, loss, **kwargs):
    heads = {**HEADS, **MORE_HEADS}
    return config_of(head_config(name, loss, heads=heads, **kwargs))


DENSE = [(name, STABLE_AP if 'RPN' in name else PER_CLASS) for name in FOLDED]
DENSE += [('RetinaHead', STABLE_AP), ('GFLHead', dict(type='mmrank.APLoss'))]
DENSE += [('FCOSHead', UNCENTRED)]
DENSE += [('RetinaHead', dict(STABLE_AP, activation='sigmoid'))]
DENSE += [(name, dict(type='mmrank.RankSortLoss')) for name in ('RetinaHead', 'RTMDetHead')]
DENSE += [('RetinaHead', dict(type='mmrank.SOPRCLoss', mode='per_class', score_range=(-20, 20)))]
DENSE += [('FCOSHead', dict(type='mmrank.SumLoss', losses=[STABLE_AP] * 2))]


@pytest.mark.parametrize(('name', 'loss'), DENSE)
def test_dense_heads(name, loss, tmp_path):
    head = build_spread(name, loss)
    set_centre(head.loss_cls.loss, 0.02 if 'activation' in loss else -4.0)
    expected = predict_covered(name, head)
    stock = convert(tmp_path, covered_config(name, loss), head)
    assert type(stock).__name__ == name
    # Nothing of a box depends on the bias.
    assert_same_boxes(predict_covered(name, stock), expected, pixels=0.0)


def test_a_threshold_is_the_score_thr_of_the_stock_config(tmp_path):
    head = build_spread('RetinaHead', STABLE_AP)
    set_centre(head.loss_cls.loss)
    expected = predict_covered('RetinaHead', head)
    score = float(expected[0].scores.sort().values[-5])
    row = ['all classes', score, 9, 0.5, 0.5, 1.0]
    chosen = dict(figure='f1', iou=0.5, images=2, all=score, classes={}, table=[row])
    config = covered_config('RetinaHead', STABLE_AP)
    stock = convert(tmp_path, config, head, meta=dict(thresholds=chosen))
    kept = [one[one.scores >= score] for one in expected]
    assert len(kept[0]) == 5  # the box at the threshold, too
    assert_same_boxes(predict_covered('RetinaHead', stock), kept, pixels=0.0)
    assert torch.load(tmp_path / 'stock.pth')['meta']['thresholds'] == chosen
    assert '| all classes | ' in (tmp_path / 'stock.md').read_text()


@pytest.mark.parametrize('name', NOT_FOLDED)
def test_scores_that_no_bias_moves(name, tmp_path):
    # Less than elsewhere: far above the objectness of YOLOX, all classes of a point have its score.
    head = spread_scores(build_covered(name, STABLE_AP), 2)
    set_centre(head.loss_cls.loss)
    config = covered_config(name, STABLE_AP)
    with pytest.raises(UserError, match=NOT_FOLDED[name]) as caught:
        convert(tmp_path, config, head)
    assert 'centre_scores=False' in str(caught.value)
    assert not (tmp_path / 'stock.py').exists()
    # Raw scores, however low, are those of the stock head.
    head.centre_scores, head.test_cfg.score_thr = False, 0.0
    expected = predict_covered(name, head)
    config.model.centre_scores = False
    config.model.test_cfg.score_thr = 0.0
    stock = convert(tmp_path, config, head)
    # Of YOLOX, which mmrank shows by another formula, equal scores of two boxes may be rounded into
    # another order.
    found = [in_order(one) for one in predict_covered(name, stock)]
    assert_same_boxes(found, [in_order(one) for one in expected])


def in_order(boxes):
    """Boxes by their place, those of one place by their class."""
    place = (boxes.bboxes.double() * 16).round()
    keys = torch.cat([boxes.labels[:, None].double(), place], 1)
    return boxes[torch.from_numpy(np.lexsort(keys.numpy().T))]


@pytest.mark.parametrize('name', sorted(QUERY_HEADS))
def test_query_heads(name, tmp_path):
    head = spread_scores(build_query_head(name))
    head.loss_by_feat(*query_inputs(name))
    assert head.loss_cls.layers[-1].loss.logit_centre() != 0
    expected = shown_queries(name, head)
    stock = convert(tmp_path, config_of(query_head_config(name)), head)
    assert type(stock).__name__ == name.partition(',')[0]
    assert_same_boxes(shown_queries(name, stock), expected, pixels=0.0)


def shown_images(model, masks=False):
    model.eval()
    data = model.data_preprocessor(rcnn_batch(masks=masks), False)
    with torch.no_grad():
        found = model(**data, mode='predict')
    return [sample.pred_instances for sample in found]


RANKING_BOX_HEAD = dict(
    type='mmrank.ListwiseBBoxHead', head_type='mmdet.Shared2FCBBoxHead', box_average='positives'
)


@pytest.mark.parametrize(
    ('kind', 'box_head'),
    [
        ('faster', dict(RANKING_BOX_HEAD, loss_cls=PER_CLASS)),
        ('mask', dict(RANKING_BOX_HEAD, loss_cls=STABLE_AP)),
        ('cascade', dict(loss_cls=STABLE_AP)),
    ],
)
def test_detectors_of_two_stages(kind, box_head, tmp_path):
    model = spread_scores(build_detector(kind, box_head), 30)
    set_centre(model.rpn_head.loss_cls.loss)
    heads = model.roi_head.bbox_head
    heads = heads if kind == 'cascade' else [heads]
    for stage, head in enumerate(heads):
        set_centre(head, -3.0 + 0.7 * stage)
    expected = shown_images(model)
    masks = [one.pop('masks') for one in expected if 'masks' in one]
    config = config_of(detector_config(kind, box_head))
    stock = convert(tmp_path, config, model)
    found = shown_images(stock)
    for one, mask in zip(found, masks):
        assert torch.equal(one.pop('masks'), mask)
    assert_same_boxes(found, expected, pixels=0.0)
    assert len({*expected[0].labels.tolist()}) > 1


def test_averaged_weights_are_taken(tmp_path):
    """In the file of an EMAHook the average is the model's state."""
    for ema in ('ExponentialMovingAverage', 'mmdet.ExpMomentumEMA'):
        head = build_spread('RetinaHead', STABLE_AP)
        hook = EMAHook(ema_type=ema, momentum=0.2)
        runner = SimpleNamespace(model=head, iter=0, epoch=0)
        hook.before_run(runner)
        for _ in range(3):
            with torch.no_grad():
                head.retina_reg.weight.add_(1)
            hook.after_train_iter(runner, 0)
        checkpoint = dict(state_dict=head.state_dict())
        average = hook.ema_model.module.retina_reg.weight.clone()
        assert not torch.equal(average, head.retina_reg.weight)
        hook.before_save_checkpoint(runner, checkpoint)
        weights = tmp_path / 'training.pth'
        torch.save(checkpoint, weights)
        config = covered_config('RetinaHead', STABLE_AP)
        write_stock_model(config, str(weights), tmp_path / 'stock')
        stock = load_stock(tmp_path / 'stock')
        assert torch.equal(stock.retina_reg.weight, average)


def test_what_a_test_reads_stays():
    head = head_config('RetinaHead', STABLE_AP, federated=True)
    pipeline = [dict(type='LoadImageFromFile')]
    data = dict(ann_file='val.json', pipeline=[*pipeline, dict(type='mmrank.CheckFinite')])
    given = config_of(
        head,
        custom_imports=dict(imports=['mmrank.losses', 'numpy']),
        custom_hooks=[dict(type='mmrank.RankingMonitorHook', interval=5)],
        train_dataloader=dict(sampler=dict(type='mmrank.PKSampler')),
        test_dataloader=dict(
            collate_fn=dict(type='mmrank.one_size_collate'),
            dataset=dict(
                type='ConcatDataset',
                datasets=[
                    dict(type='mmrank.CheckedCocoDataset', **data),
                    dict(type='mmrank.LVISDataset', ann_file='a'),
                ],
            ),
        ),
        ranking=dict(type='mmrank.StableAPLoss'),
        work_dir='work_dirs/mmrank',
    )
    before = given.to_dict()
    stock, changes = stock_config(given)
    assert given.to_dict() == before
    assert {*stock} == {'default_scope', 'model', 'custom_imports', 'test_dataloader'}
    assert stock.model.type == 'mmdet.RetinaHead'
    assert stock.model.loss_cls.type == 'mmdet.FocalLoss'
    assert 'federated' not in stock.model
    assert stock.model.train_cfg is None
    assert stock.custom_imports.imports == ['numpy']
    loader = stock.test_dataloader
    assert loader.collate_fn.type == 'default_collate'
    assert [x.to_dict() for x in loader.dataset.datasets] == [
        dict(type='mmdet.CocoDataset', ann_file='val.json', pipeline=pipeline),
        dict(type='mmdet.LVISV1Dataset', ann_file='a'),
    ]
    reported = '\n'.join(changes)
    assert 'model: mmdet.RetinaHead' in reported
    assert 'test_dataloader.dataset.datasets.0.pipeline.1: without' in reported


KINDS = ('DATASETS', 'DATA_SAMPLERS', 'FUNCTIONS', 'METRICS', 'MODELS', 'TRANSFORMS')


@pytest.mark.parametrize('kind', KINDS)
def test_each_registered_name_is_replaced_or_refused_by_name(kind):
    ours = getattr(registry, kind)
    ours.import_from_location()
    assert ours.module_dict
    for name in ours.module_dict:
        if name.startswith(('Listwise', 'Federated')) and 'Head' in name:
            continue  # above
        entry = dict(type=f'mmrank.{name}')
        text = ''
        try:
            stock, _ = stock_config(config_of({}, test_evaluator=[entry]))
        except UserError as error:
            text = str(error)
        if text:
            assert 'test_evaluator.0.type' in text
            assert name in text
            continue
        for left in stock.test_evaluator:
            with DefaultScope.overwrite_default_scope('mmdet'):
                assert ours.parent.get(left.type) is not None


def test_a_federated_roi_head_goes():
    roi = detector_config('faster', dict(RANKING_BOX_HEAD, loss_cls=STABLE_AP)).roi_head
    roi.update(type='mmrank.FederatedRoIHead', head_type='StandardRoIHead')
    stock, changes = stock_config(config_of(dict(type='FasterRCNN', roi_head=roi)))
    assert stock.model.roi_head.type == 'StandardRoIHead'
    assert stock.model.roi_head.bbox_head.type == 'mmdet.Shared2FCBBoxHead'
    assert 'model.roi_head: StandardRoIHead' in changes


def refusal(tmp_path, cfg, model=None, out='stock'):
    model = model or build_spread('RetinaHead', STABLE_AP)
    weights = tmp_path / 'training.pth'
    torch.save(dict(state_dict=model.state_dict()), weights)
    with pytest.raises(UserError, match='Fix: ') as caught:
        write_stock_model(cfg, str(weights), tmp_path / out)
    assert {x.name for x in tmp_path.iterdir()} <= {'training.pth', 'folder'}
    return str(caught.value)


@pytest.mark.parametrize(
    'other', [('FCOSHead', {}), ('RetinaHead', dict(num_classes=7))], ids=lambda x: x[0]
)
def test_another_model(tmp_path, other):
    name, settings = other
    model = build_spread(name, STABLE_AP, **settings)
    text = refusal(tmp_path, covered_config('RetinaHead', STABLE_AP), model)
    assert 'does not fit this config' in text
    assert 'retina_cls.weight' in text


RETINA = head_config('RetinaHead', STABLE_AP)
STOCK = head_config('RetinaHead', STABLE_AP, listwise=False)
STOCK['loss_cls'] = dict(type='FocalLoss', use_sigmoid=True)
OF_OURS = dict(type='RetinaNet', backbone=dict(type='mmrank.SmallConvNet'), bbox_head=RETINA)


@pytest.mark.parametrize(
    ('model', 'test_dataloader', 'words'),
    [
        (STOCK, {}, 'no detection head of mmrank'),
        (RETINA, dict(sampler=dict(type='mmrank.PKSampler')), "sampler.type='mmrank.PKSampler'"),
        (RETINA, dict(dataset=dict(data_root='mmrank/')), "dataset.data_root='mmrank/'"),
        (OF_OURS, {}, "model.backbone.type='mmrank.SmallConvNet'"),
        (dict(type='mmdet.SSDHead', loss_cls=STABLE_AP), {}, 'none of the heads that mmrank'),
    ],
)
def test_entries_without_a_counterpart(tmp_path, model, test_dataloader, words):
    assert words in refusal(tmp_path, config_of(model, test_dataloader=test_dataloader))


def test_classes_in_place_of_names(tmp_path):
    from mmdet.models.dense_heads import RetinaHead

    cfg = covered_config('RetinaHead', STABLE_AP)
    cfg.model.type, cfg.model.head_type = ListwiseHead, RetinaHead
    stock = convert(tmp_path, cfg, build_spread('RetinaHead', STABLE_AP))
    assert type(stock) is RetinaHead


def test_names_of_the_files(tmp_path):
    for end in ('', '.py', '.pth'):
        assert stock_paths(f'a/v1.2{end}') == (Path('a/v1.2.py'), Path('a/v1.2.pth'))
    cfg = covered_config('RetinaHead', STABLE_AP)
    assert 'would overwrite' in refusal(tmp_path, cfg, out='training')
    (tmp_path / 'folder').mkdir()
    assert 'is a folder' in refusal(tmp_path, cfg, out='folder')


CONFIG = ROOT / 'configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py'
#: Run with the config, the weights, an image and the file to write.
INFER = """
import sys

import mmcv.ops  # its operators may be those of mmrank

for name in [x for x in sys.modules if x.partition('.')[0] == 'mmrank']:
    del sys.modules[name]
sys.modules['mmrank'] = None  # its import raises
import numpy as np
from mmdet.apis import DetInferencer

config, weights, image, out = sys.argv[1:]
found = []
for arguments in ((config, weights), (None, weights)):
    infer = DetInferencer(*arguments, device='cpu', show_progress=False)
    result = infer(np.load(image), return_datasamples=True)
    boxes = result['predictions'][0].pred_instances
    found += [boxes.bboxes, boxes.scores, boxes.labels]
np.savez(out, *[x.numpy() for x in found])
"""


@pytest.fixture
def detector():
    """The RetinaNet of blood cells, its centres per class, untrained."""
    cfg = Config.fromfile(CONFIG)
    cfg.model.bbox_head.loss_cls.mode = 'per_class'
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
    model.init_weights()
    set_centre(spread_scores(model, 20).bbox_head.loss_cls.loss)
    model.cfg = cfg
    return model.eval()


@pytest.fixture
def stock_files(detector, run, tmp_path):
    meta = dict(dataset_meta=dict(classes=('a', 'b', 'c')))
    weights = tmp_path / 'training.pth'
    torch.save(dict(state_dict=detector.state_dict(), meta=meta), weights)
    option = '--cfg-options model.bbox_head.loss_cls.mode=per_class'
    out = tmp_path / 'stock/detector'
    printed = run('model_converters/to_stock', CONFIG, weights, out, option)
    assert 'model.bbox_head: mmdet.RetinaHead' in printed
    assert 'bbox_head: the centre of the scores, -4.00, -3.70' in printed
    files = [tmp_path / f'stock/detector.{end}' for end in ('py', 'pth')]
    assert f'Wrote {files[0]} and {files[1]}' in printed
    return files


@pytest.mark.slow
def test_an_inferencer_without_mmrank(detector, stock_files, tmp_path):
    """By both files, and by the weights alone, which hold the config."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (192, 256, 3), dtype=np.uint8)
    np.save(tmp_path / 'image.npy', image)
    script, out = tmp_path / 'infer.py', tmp_path / 'found.npz'
    script.write_text(INFER)
    done = subprocess.run(
        [sys.executable, script, *stock_files, tmp_path / 'image.npy', out],
        capture_output=True,
        text=True,
        env={**os.environ, 'PYTHONPATH': ''},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    with torch.no_grad(), DefaultScope.overwrite_default_scope('mmdet'):
        expected = inference_detector(detector, image).pred_instances
    assert len(expected) > 10
    found = np.load(out)
    for first in (0, 3):
        boxes, scores, labels = (torch.from_numpy(found[f'arr_{first + i}']) for i in range(3))
        torch.testing.assert_close(boxes, expected.bboxes, atol=1e-4, rtol=0)
        torch.testing.assert_close(scores, expected.scores, atol=1e-6, rtol=0)
        assert torch.equal(labels, expected.labels)


@pytest.mark.slow
def test_an_onnx_file_gives_the_same_raw_outputs(detector, stock_files, tmp_path, monkeypatch):
    """By the block of the page."""
    for name in ('onnx', 'onnxscript', 'onnxruntime'):
        pytest.importorskip(name, reason=f'the export needs {name}')
    page = docs_blocks.PAGES / 'calibration_and_deployment.md'
    monkeypatch.chdir(tmp_path)
    names = docs_blocks.values_of(docs_blocks.block(page, 'torch.onnx'))
    assert b'mmrank' not in (tmp_path / 'detector.onnx').read_bytes()
    network = names['network']
    assert not any(type(part).__module__.startswith('mmrank') for part in network.modules())
    with torch.no_grad():
        scores, deltas = detector(names['images'], mode='tensor')
    centre = detector.bbox_head.loss_cls.loss.logit_centre()
    assert centre.numel() == 3
    assert centre.abs().min() > 1
    centre = centre.repeat(3)[:, None, None]  # of each anchor
    assert max(level.std() for level in scores) > 0.1
    expected = (*(level - centre for level in scores), *deltas)
    for one, other in zip(names['outputs'], expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other, atol=1e-4, rtol=0)
