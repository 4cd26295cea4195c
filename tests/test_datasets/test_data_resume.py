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


def train(root, work_dir, loop, workers, resume=None):
    """Train; return what the hook saw and the weights at the end."""
    BatchLogHook.seen = []
    by_epoch = loop == 'epochs'
    pipeline = [
        dict(type='LoadImageFromFile', color_type='grayscale'),
        dict(type='Rotate', magnitude_range=(0, 15), magnitude_std='inf', prob=1.0, pad_val=0),
        dict(type='RandomCrop', crop_size=12, padding=1),
        dict(type='PackInputs'),
    ]
    sampler = dict(type='mmrank.PKSampler', batch_size=6, num_per_class=3)
    cfg = dict(
        work_dir=str(work_dir),
        model=dict(type='DrawingModel'),
        train_dataloader=dict(
            batch_size=6,
            num_workers=workers,
            persistent_workers=False,
            collate_fn=dict(type='default_collate'),
            sampler=dict(sampler, infinite=loop == 'infinite'),
            dataset=dict(type='mmrank.ClassFolder', data_root=str(root), pipeline=pipeline),
        ),
        train_cfg=dict(
            by_epoch=by_epoch, **(dict(max_epochs=3) if by_epoch else dict(max_iters=9))
        ),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01)),
        default_hooks=dict(
            checkpoint=dict(
                type='mmrank.AtomicCheckpointHook', by_epoch=by_epoch, interval=1 if by_epoch else 5
            )
        ),
        custom_hooks=[dict(type='mmrank.RNGStateHook'), dict(type='BatchLogHook')],
        default_scope='mmpretrain',
        log_level='ERROR',
        load_from=resume,
        resume=resume is not None,
        randomness=dict(seed=3),
    )
    runner = Runner.from_cfg(Config(cfg))
    runner.train()
    return BatchLogHook.seen, runner.model.state_dict()


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
    whole, weights = train(root, tmp_path / 'a', loop, workers)
    assert len(whole) == 9
    assert len({tuple(order) for _, order, _ in whole}) == 9
    saved = str(tmp_path / 'a' / f'{checkpoint}.pth')
    resumed, weights_again = train(root, tmp_path / 'b', loop, workers, saved)
    assert resumed == whole[done:]
    assert weights.keys() == weights_again.keys()
    for key, value in weights.items():
        assert torch.equal(value, weights_again[key])
