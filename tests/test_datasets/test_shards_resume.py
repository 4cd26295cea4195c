"""A training on shards, with state per sample, resumes bit for bit."""

import io
import tarfile

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS, MODELS
from mmengine.runner import Runner
from torch import nn

pytest.importorskip('mmpretrain')
pytest.importorskip('datasets', minversion='4')
from mmrank.datasets.shards.stream import index_stream
from mmrank.datasets.shards.tar_shard import index_tars
from mmrank.errors import UserError

SIZES = (17, 9, 22)  # 48


@MODELS.register_module(force=True)
class ShardModel(BaseModel):
    """Linear embeddings of pixels and of the letters of a caption."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.texts = nn.Linear(48, 4), nn.Linear(8, 4)
        self.loss = MODELS.build(dict(type='mmrank.BimodalISogCLRLoss', num_samples=48))

    def forward(self, inputs, data_samples=None, mode='tensor'):
        """The loss."""
        letters = torch.tensor([[ord(x) for x in s.text.ljust(8)] for s in data_samples])
        left, right = (
            nn.functional.normalize(net(x.float().flatten(1) / 255))
            for net, x in ((self.images, inputs), (self.texts, letters))
        )
        ids = torch.tensor([s.sample_idx for s in data_samples])
        return {'loss': self.loss(left, right, ids)}


@HOOKS.register_module(force=True)
class ShardLogHook(Hook):
    """Keeps the samples and the loss of every iteration."""

    seen: list = []  # noqa: RUF012

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        """Append one entry."""
        order = [s.sample_idx for s in data_batch['data_samples']]
        self.seen.append((runner.iter, order, outputs['loss'].item()))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp('shards'), np.random.default_rng(0)
    for shard, size in enumerate(SIZES):
        with tarfile.open(folder / f'{shard}.tar', 'w') as tar:
            for number in range(size):
                pixels = rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)
                image = cv2.imencode('.png', pixels)[1].tobytes()
                text = f'n {number}'.encode()
                for member, data in (('png', image), ('txt', text)):
                    info = tarfile.TarInfo(f'{number}.{member}')
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    index_tars(folder)
    load = dict(
        path='webdataset', data_files=[str(folder / f'{i}.tar') for i in range(3)], split='train'
    )
    index_stream(load, folder / 'stream', 'png', 'txt', '__key__')
    return folder


def run(folder, work_dir, kind, workers, resume=None, **dataset):
    flip = [] if workers else [dict(type='RandomFlip', prob=0.5)]
    place = (
        dict(data_root=str(folder))
        if kind == 'ShardedCaptions'
        else dict(index=str(folder / 'stream'))
    )
    pack = dict(
        type='PackInputs',
        algorithm_keys=['text'],
        meta_keys=['sample_idx', 'image_id', 'text_id', 'img_path'],
    )
    ShardLogHook.seen = []
    cfg = dict(
        work_dir=str(work_dir),
        model=dict(type='ShardModel'),
        train_dataloader=dict(
            batch_size=6,
            num_workers=workers,
            persistent_workers=False,
            collate_fn=dict(type='mmrank.one_size_collate'),
            sampler=dict(
                type='mmrank.ShardSampler',
                batch_size=6,
                buffer=9,
                readers=2,
                workers=max(workers, 1),
                infinite=True,
            ),
            dataset=dict(
                type=f'mmrank.{kind}',
                pipeline=[dict(type='mmrank.LoadImageFromBytes'), *flip, pack],
                **{**place, **dataset},
            ),
        ),
        train_cfg=dict(by_epoch=False, max_iters=12),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01)),
        default_hooks=dict(
            checkpoint=dict(type='mmrank.AtomicCheckpointHook', interval=5, by_epoch=False)
        ),
        custom_hooks=[
            dict(type='mmrank.SampleIndexHook'),
            dict(type='mmrank.RNGStateHook'),
            dict(type='ShardLogHook'),
        ],
        default_scope='mmpretrain',
        log_level='ERROR',
        load_from=None if resume is None else str(resume),
        resume=resume is not None,
    )
    runner = Runner.from_cfg(Config(cfg))
    runner.train()
    return list(ShardLogHook.seen), runner.model.state_dict()


@pytest.mark.parametrize(
    ('kind', 'workers'),
    [
        ('ShardedCaptions', 0),
        ('StreamedCaptions', 0),
        pytest.param('ShardedCaptions', 2, marks=pytest.mark.slow),
        pytest.param('StreamedCaptions', 2, marks=pytest.mark.slow),
    ],
)
def test_resume_is_exact(folder, tmp_path, kind, workers):
    whole, weights = run(folder, tmp_path / 'a', kind, workers)
    orders = [order for _, order, _ in whole]
    epoch = [index for order in orders[:8] for index in order]
    assert sorted(epoch) == list(range(48))
    again, weights_again = run(folder, tmp_path / 'b', kind, workers, tmp_path / 'a' / 'iter_5.pth')
    assert again == whole[5:]
    assert weights.keys() == weights_again.keys()
    for key, value in weights.items():
        assert torch.equal(value, weights_again[key])


def test_another_index_is_not_resumed(folder, tmp_path):
    kind = 'ShardedCaptions'
    run(folder, tmp_path / 'a', kind, 0)
    checkpoint = tmp_path / 'a' / 'iter_5.pth'
    saved = torch.load(checkpoint, weights_only=False)
    digest = saved['sample_index']
    assert digest.endswith('-pair')
    for change in (dict(unit='image'), dict(index=str(tmp_path / 'index'))):
        if 'index' in change:
            # The same samples, numbered from the last shard on.
            from mmrank.datasets.shards.shard_index import ScannedShard, write_index
            from mmrank.datasets.shards.tar_shard import file_note, scan_tar

            found = [
                (ScannedShard(name, scan_tar(folder / name)), file_note(folder / name))
                for name in ('2.tar', '1.tar', '0.tar')
            ]
            source = dict(kind='tar', caption='txt')
            write_index(tmp_path / 'index', source, found)
        with pytest.raises(UserError, match='have other numbers than in'):
            run(folder, tmp_path / 'b', kind, 0, checkpoint, **change)
    del saved['sample_index']
    torch.save(saved, checkpoint)
    run(folder, tmp_path / 'c', kind, 0, checkpoint)  # with a warning
