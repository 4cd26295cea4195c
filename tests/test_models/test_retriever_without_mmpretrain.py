"""What of the models works, and what is said, without mmpretrain."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CODE = f"""
import sys


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('mmpretrain', 'mmdet', 'mmcv'):
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)


sys.meta_path.insert(0, Blocker())
sys.path.insert(0, {str(ROOT)!r})
import torch
from mmengine.registry import HOOKS, MODELS
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
assert HOOKS.get('mmrank.ClassCountsHook')
for config in (
    dict(type='mmrank.EmbeddingRetriever', image_encoder={{}}),
    dict(type='mmrank.TwoViewLearner', backbone={{}}, loss={{}}),
):
    try:
        MODELS.build(config)
    except ImportError as error:
        assert 'mim install mmpretrain' in str(error), error
    else:
        raise AssertionError('built without mmpretrain')
"""


def test_the_head_trains_and_the_retriever_says_what_it_needs():
    done = subprocess.run(
        [sys.executable, '-c', CODE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
