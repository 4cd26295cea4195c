"""Stock files are deployed where there is no mmrank."""

import os
import subprocess
import sys

import docs_blocks
import numpy as np
import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.apis import inference_detector
from mmengine.config import Config
from mmengine.registry import DefaultScope
from shown_boxes import set_centre, spread_scores
from tiny_tool_run import ROOT

from mmrank.registry import MODELS

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
