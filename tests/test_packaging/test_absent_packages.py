"""Each optional package may be absent."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BLOCKER = """
import sys

class Blocker:
    names = set({names!r})

    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in self.names:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)

sys.meta_path.insert(0, Blocker())
sys.path[:0] = [{root!r}, {root!r} + '/tools']
"""


def run_without(names, code):
    blocker = BLOCKER.format(names=sorted(names), root=str(ROOT))
    return subprocess.run([sys.executable, '-c', blocker + code], capture_output=True, text=True)


OPENMMLAB = {'mmengine', 'mmcv', 'mmdet', 'mmpretrain'}
ADAPTED = {'safetensors', 'sentence_transformers', 'torchvision', 'transformers'}
OTHERS = {'matplotlib', 'pycocotools', 'rich', 'scipy', 'tabulate', *ADAPTED}


@pytest.mark.slow
@pytest.mark.parametrize('absent', [{'mmdet'}, {'mmpretrain', 'pytorch_metric_learning'}])
def test_registry_builds_without(absent):
    done = run_without(absent, REGISTRY)
    assert done.returncode == 0, done.stderr


REGISTRY = """
import torch
from mmengine.registry import METRICS, MODELS
from mmrank.registry import DATASETS, HOOKS, OPTIMIZERS

assert MODELS.build(dict(type='mmrank.StableAPLoss'))
assert OPTIMIZERS.get('mmrank.SUM')
assert HOOKS.get('mmrank.RankingMonitorHook')
assert HOOKS.get('mmrank.ClassCountsHook')
metric = METRICS.build(dict(type='mmrank.RetrievalMetric'))
assert metric.recall_at == (1, 10, 100, 1000)
"""
DATA = """
import mmrank.datasets.checks.coco_check
import mmrank.apis.synthetic.shapes_coco
import mmrank.apis.coco.detections
import mmrank.apis.coco.pr_curves
from mmrank.datasets.registered import RETRIEVAL_DATASETS


def refused(registry, package, **config):
    try:
        registry.build(config)
    except ImportError as error:
        assert f'requires {package}, which is not installed' in str(error)
        assert f'mim install {package}' in str(error), error
    else:
        raise AssertionError(f'built {config} without {package}')


assert len(RETRIEVAL_DATASETS) == 5
for name in RETRIEVAL_DATASETS:
    refused(DATASETS, 'mmpretrain', type=f'mmrank.{name}', data_root='')
refused(DATASETS, 'mmdet', type='mmrank.CheckedCocoDataset', ann_file='a')
"""
HEADS = """
from mmengine.structures import BaseDataElement

net = MODELS.build(
    dict(
        type='mmrank.DeepFeatureMixup',
        backbone=dict(type='mmrank.SmallConvNet', channels=8),
        stages=('blocks',),
    )
)
head = MODELS.build(
    dict(
        type='mmrank.RetrievalHead',
        num_classes=2,
        loss=dict(type='mmrank.StableAPLoss', mode='per_class'),
        memory=dict(size=8, dim=8),
    )
)
samples = [
    BaseDataElement(metainfo=dict(sample_idx=i), gt_label=torch.tensor(i % 2))
    for i in range(4)
]
with net.mixing(torch.arange(4) % 2):
    maps = net(torch.randn(4, 1, 28, 28))[-1]
head.loss(maps.flatten(1), samples, 2)['loss'].backward()
retriever = dict(type='mmrank.EmbeddingRetriever', image_encoder={})
refused(MODELS, 'mmpretrain', **retriever)
learner = dict(type='mmrank.TwoViewLearner', backbone={}, loss={})
refused(MODELS, 'mmpretrain', **learner)
"""


def test_without_mmdet_and_mmpretrain():
    """One process: it takes most of the time to import torch."""
    absent = {'mmdet', 'mmpretrain', 'mmcv'}
    done = run_without(absent, REGISTRY + DATA + HEADS)
    assert done.returncode == 0, done.stderr


def test_functions_and_losses_need_torch_alone():
    code = (
        'import torch, mmrank.functional as F\n'
        'x = torch.tensor([[1., 2.]], requires_grad=True)\n'
        'y = torch.tensor([[0., 3., 1.]])\n'
        'F.pairwise_surrogate_sum(x, y, F.OneSidedHuber(1.0)).sum().backward()\n'
        'assert torch.isfinite(x.grad).all()\n'
        'bad = {"numpy", "mmengine"} & set(vars(sys.modules["mmrank"]))\n'
        'assert not bad, bad\n'
        'from mmrank.losses import AUCLoss, ISogCLRLoss, StableAPLoss\n'
        'from mmrank.losses import SumLoss\n'
        'from mmrank.registry import MODELS\n'
        'scores = torch.randn(20, 3, requires_grad=True)\n'
        'loss = StableAPLoss(rho=1.0)\n'
        'loss(scores, torch.arange(20) % 4).backward()\n'
        'assert torch.isfinite(scores.grad).all()\n'
        'total = SumLoss([StableAPLoss(rho=1.0), AUCLoss(tau=1.0)])\n'
        'total(scores, torch.arange(20) % 4).backward()\n'
        'try:\n'
        '    SumLoss([dict(type="mmrank.AUCLoss")])\n'
        'except ImportError as error:\n'
        '    assert "mim install mmengine" in str(error)\n'
        'else:\n'
        '    raise AssertionError("built without mmengine")\n'
        'view = torch.randn(8, 4)\n'
        'assert ISogCLRLoss(8)(view, view, torch.arange(8)).isfinite()\n'
        'try:\n'
        '    MODELS.build(dict(type="StableAPLoss"))\n'
        'except ImportError as error:\n'
        '    assert "mim install mmengine" in str(error)\n'
        'else:\n'
        '    raise AssertionError("built without mmengine")\n'
        'assert "mmengine" not in sys.modules\n'
    )
    absent = OPENMMLAB | OTHERS | {'pytorch_metric_learning'}
    done = run_without(absent, code)
    assert done.returncode == 0, done.stderr


def test_adapters_say_which_library_is_absent():
    code = (
        'import torch, importlib\n'
        'from mmrank.adapters import use_ranking_loss\n'
        'from mmrank.losses import StableAPLoss\n'
        'try:\n'
        '    use_ranking_loss(torch.nn.Linear(2, 2), StableAPLoss())\n'
        'except TypeError as error:\n'
        '    assert "model=Linear has no adapter" in str(error)\n'
        'for name, package in (\n'
        '    ("sentence_losses", "transformers"),\n'
        '    ("detection_transformers", "transformers"),\n'
        '    ("torchvision_detectors", "torchvision"),\n'
        '    ("torchvision_rcnn", "torchvision"),\n'
        '):\n'
        '    try:\n'
        '        importlib.import_module("mmrank.adapters." + name)\n'
        '    except ImportError as error:\n'
        '        message = str(error)\n'
        '        assert f"requires {package}, which is not" in message\n'
        '        assert "Fix: " in message\n'
        '    else:\n'
        '        raise AssertionError(name)\n'
        'assert "mmengine" not in sys.modules\n'
    )
    done = run_without(OPENMMLAB | OTHERS, code)
    assert done.returncode == 0, done.stderr
