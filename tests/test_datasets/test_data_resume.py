"""A resumed training sees the samples, augmentations and losses of an uninterrupted one."""

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS, MODELS
from mmengine.runner import Runner
from torch import nn

pytest.importorskip('mmpretrain')
from make_glyphs import GlyphsSpec, write_glyphs


@MODELS.register_module(force=True)
class DrawingModel(BaseModel):
    """One linear layer; augmented pixels reach the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12 * 12, 4)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        """Give a loss that depends on every pixel and label."""
        labels = torch.cat([sample.gt_label for sample in data_samples])
        features = self.layer(inputs.float().flatten(1) / 255)
        return {'loss': (features.sum(1) - labels).square().mean()}


@HOOKS.register_module(force=True)
class BatchLogHook(Hook):
    """Keeps the samples and the loss of every iteration."""

    seen: list = []  # noqa: RUF012

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        """Append one entry."""
        order = [s.sample_idx for s in data_batch['data_samples']]
        self.seen.append((runner.iter, order, outputs['loss'].item()))


def train(work_dir, model, loader, hooks, by_epoch, length, resume, **other):
    """Train; return what the hook saw and the weights at the end."""
    BatchLogHook.seen = []
    last = dict(max_epochs=length) if by_epoch else dict(max_iters=length)
    checkpoint = dict(type='mmrank.AtomicCheckpointHook', by_epoch=by_epoch)
    cfg = dict(
        work_dir=str(work_dir),
        model=dict(type=model),
        train_dataloader=dict(batch_size=6, persistent_workers=False, **loader),
        train_cfg=dict(by_epoch=by_epoch, **last),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01)),
        default_hooks=dict(checkpoint=dict(checkpoint, interval=1 if by_epoch else 5)),
        custom_hooks=[*hooks, dict(type='mmrank.RNGStateHook'), dict(type='BatchLogHook')],
        default_scope='mmpretrain',
        log_level='ERROR',
        load_from=None if resume is None else str(resume),
        resume=resume is not None,
        **other,
    )
    runner = Runner.from_cfg(Config(cfg))
    runner.train()
    return list(BatchLogHook.seen), runner.model.state_dict()


def assert_resumed(whole, weights, resumed, weights_again, done):
    assert resumed == whole[done:]
    assert weights.keys() == weights_again.keys()
    for key, value in weights.items():
        assert torch.equal(value, weights_again[key])


def train_on_drawings(root, work_dir, loop, workers, resume=None):
    rotate = dict(magnitude_range=(0, 15), magnitude_std='inf', prob=1.0, pad_val=0)
    pipeline = [
        dict(type='LoadImageFromFile', color_type='grayscale'),
        dict(type='Rotate', **rotate),
        dict(type='RandomCrop', crop_size=12, padding=1),
        dict(type='PackInputs'),
    ]
    sampler = dict(type='mmrank.PKSampler', batch_size=6, num_per_class=3)
    loader = dict(
        num_workers=workers,
        collate_fn=dict(type='default_collate'),
        sampler=dict(sampler, infinite=loop == 'infinite'),
        dataset=dict(type='mmrank.ClassFolder', data_root=str(root), pipeline=pipeline),
    )
    by_epoch = loop == 'epochs'
    length = 3 if by_epoch else 9
    seed = dict(randomness=dict(seed=3))
    return train(work_dir, 'DrawingModel', loader, [], by_epoch, length, resume, **seed)


@pytest.mark.parametrize(
    ('loop', 'workers', 'checkpoint', 'done'),
    [
        ('infinite', 0, 'iter_5', 5),
        pytest.param('restarted', 0, 'iter_5', 5, marks=pytest.mark.slow),
        pytest.param('epochs', 0, 'epoch_2', 6, marks=pytest.mark.slow),
        pytest.param('epochs', 2, 'epoch_2', 6, marks=pytest.mark.slow),
    ],
)
def test_drawings_and_pk_batches(tmp_path, monkeypatch, loop, workers, checkpoint, done):
    # mmengine waits two seconds where an iterator starts over.
    monkeypatch.setattr('mmengine.runner.loops.time.sleep', lambda _: None)
    root = tmp_path / 'data'
    write_glyphs(root, GlyphsSpec(6, 3, size=12))
    whole, weights = train_on_drawings(root, tmp_path / 'a', loop, workers)
    assert len(whole) == 9
    assert len({tuple(order) for _, order, _ in whole}) == 9
    saved = tmp_path / 'a' / f'{checkpoint}.pth'
    again = train_on_drawings(root, tmp_path / 'b', loop, workers, saved)
    assert_resumed(whole, weights, *again, done)
