"""A tiny training that can be killed at a chosen instruction.

Not a test: ``test_exact_resume.py`` starts :func:`train` in processes of its own. Every source of
randomness that a training has is used: Python, NumPy and torch in the data set, dropout in the
model, and random numbers drawn by the validation.
"""

import os
import random
import signal
import stat
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from forked_processes import process_context
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.optim.optimizer import amp_optimizer_wrapper
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS
from mmengine.runner import Runner, amp
from torch import nn
from torch.utils.data import Dataset
from training_ends import contents


@DATASETS.register_module(force=True)
class NoisyDataset(Dataset):
    """Twelve points with augmentations from three generators."""

    metainfo: ClassVar[dict] = {'classes': ('one',)}

    def __init__(self, length: int = 12) -> None:
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(length, 4, generator=generator)
        self.labels = (torch.arange(length) % 3 == 0).float()

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> dict:
        noise = random.random() + np.random.rand() + torch.rand(1)
        return {
            'inputs': self.points[index] * (1 + 0.1 * noise),
            'data_samples': self.labels[index],
        }


@MODELS.register_module(force=True)
class NoisyModel(BaseModel):
    """A perceptron with batch normalisation and dropout.

    Args:
        loss: Config of a listwise loss; None: binary cross-entropy.
        frozen: Train no weight.
    """

    def __init__(self, loss: dict | None = None, frozen: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1)
        )
        self.loss = None if loss is None else MODELS.build(loss)
        self.requires_grad_(not frozen)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        scores = self.net(torch.stack(list(inputs))).squeeze(1)
        labels = torch.stack(list(data_samples))
        if mode == 'predict':
            return [score - label for score, label in zip(scores, labels)]
        if self.loss is None:
            loss = nn.functional.binary_cross_entropy_with_logits
            return {'loss': loss(scores, labels)}
        return {'loss': self.loss(scores, labels)}


@METRICS.register_module(force=True)
class Distance(BaseMetric):
    """Mean distance of the scores to the labels."""

    def process(self, data_batch, data_samples) -> None:
        self.results += [abs(float(item)) for item in data_samples]

    def compute_metrics(self, results) -> dict:
        return {'distance': float(np.mean(results))}


@contextmanager
def _autocast(dtype=None):
    """Autocast of torch: that of mmengine refuses float16 on a CPU."""
    with torch.autocast('cpu', dtype=dtype):
        yield


def let_amp_run() -> None:
    """Take mmengine's checks of the device away, in this process for good.

    ``AmpOptimWrapper`` itself stays: it scales, unscales, skips steps, and saves the state of its
    scaler, which works on CPU tensors here.
    """
    amp_optimizer_wrapper.is_cuda_available = lambda: True
    amp_optimizer_wrapper.GradScaler = partial(torch.amp.GradScaler, device='cpu')
    amp.autocast = _autocast


@HOOKS.register_module(force=True)
class KillHook(Hook):
    """Send the process a signal at the ``count``-th ``iteration`` or batch of a ``validation``."""

    priority = 'LOWEST'

    def __init__(self, where: str, count: int, number: int = signal.SIGKILL) -> None:
        self.where, self.left, self.number = where, count, number

    def _count(self, where: str) -> None:
        if where == self.where:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), self.number)

    def after_train_iter(self, runner, **kwargs) -> None:
        self._count('iteration')

    def after_val_iter(self, runner, **kwargs) -> None:
        self._count('validation')


@HOOKS.register_module(force=True)
class LossLogHook(Hook):
    """Append each loss, exactly, to ``losses_<rank>.txt``."""

    def after_train_iter(self, runner, batch_idx, data_batch, outputs) -> None:
        name = f'losses_{runner.rank}.txt'
        with open(Path(runner.work_dir) / name, 'a') as file:
            file.write(f'{runner.iter} {outputs["loss"].item().hex()}\n')


@HOOKS.register_module(force=True)
class StateHook(Hook):
    """Keep states as resumed, saved (``saved<epoch>_<rank>.pt``) and ended."""

    # Right before the CheckpointHook.
    priority = 89

    def _save(self, runner, name: str) -> None:
        model = getattr(runner.model, 'module', runner.model)
        ema = [h.ema_model for h in runner.hooks if hasattr(h, 'ema_model')]
        content = {
            'state_dict': model.state_dict(),
            'optimizer': runner.optim_wrapper.state_dict(),
            'param_schedulers': [x.state_dict() for x in runner.param_schedulers or []],
            'ema_state_dict': ema[0].state_dict() if ema else {},
        }
        path = Path(runner.work_dir) / f'{name}_{runner.rank}.pt'
        torch.save(content, path)

    def before_train(self, runner) -> None:
        self._save(runner, 'first')

    def after_train_epoch(self, runner) -> None:
        self._save(runner, f'saved{runner.epoch + 1}')

    def after_train(self, runner) -> None:
        self._save(runner, 'last')


def kill_in_write(where: str, count: int) -> None:
    """Die in the ``count``-th write of a file named like ``where``.

    ``half``: a part of the temporary file is written; ``whole``: it is whole but has not got its
    name; ``pointer``: it has, and the pointer file does not name it.
    """
    seen = {'fsync': 0, 'replace': 0}
    fsync, replace = os.fsync, os.replace

    def die_if(is_due) -> None:
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)

    def fsync_or_die(descriptor):
        status = os.fstat(descriptor)
        # Neither the pointer file nor the folder.
        if stat.S_ISREG(status.st_mode) and status.st_size > 1000:
            seen['fsync'] += 1
            if where == 'half' and seen['fsync'] == count:
                os.ftruncate(descriptor, 1000)
                die_if(True)
        fsync(descriptor)

    def replace_or_die(source, target):
        seen['replace'] += 1
        die_if(where == 'whole' and seen['replace'] == count)
        replace(source, target)
        die_if(where == 'pointer' and seen['replace'] == count)

    os.fsync, os.replace = fsync_or_die, replace_or_die


def make_config(work_dir: str, **options) -> Config:
    """The config of the tiny training, of which ``options`` change a part."""
    get, by_epoch = options.get, not options.get('iterations')
    loader = dict(dataset=dict(type='NoisyDataset'), batch_size=4)
    sampler = dict(type='DefaultSampler' if by_epoch else 'InfiniteSampler', shuffle=True)
    in_order = dict(type='DefaultSampler', shuffle=False)
    loop = dict(by_epoch=True, max_epochs=4)
    if not by_epoch:
        loop = dict(by_epoch=False, max_iters=12, val_interval=4)
    config = dict(
        work_dir=work_dir,
        model=dict(type='NoisyModel', loss=get('loss')),
        train_dataloader=dict(loader, num_workers=get('workers', 0), sampler=sampler),
        val_dataloader=dict(loader, num_workers=0, sampler=in_order),
        val_evaluator=dict(type='Distance'),
        val_cfg=dict(),
        train_cfg=loop,
        optim_wrapper=dict(
            optimizer=get('optimizer', dict(type='SGD', lr=0.1, momentum=0.9)),
            accumulative_counts=get('accumulate', 1),
            clip_grad=get('clip_grad'),
        ),
        param_scheduler=[
            dict(type='LinearLR', start_factor=0.1, end=5, by_epoch=False),
            dict(type='ReduceOnPlateauLR', monitor='distance', rule='less', by_epoch=True)
            | dict(patience=0, factor=0.5),
        ],
        default_hooks=dict(
            logger=dict(type='LoggerHook', interval=1),
            checkpoint=dict(
                dict(type='mmrank.AtomicCheckpointHook', by_epoch=by_epoch),
                interval=1 if by_epoch else 3,
            ),
        ),
        custom_hooks=[
            dict(type='EMAHook', momentum=0.1),
            dict(type='mmrank.RNGStateHook'),
            dict(type='LossLogHook'),
            *get('hooks', []),
        ],
        log_processor=dict(by_epoch=by_epoch),
        randomness=dict(seed=get('seed', 7), diff_rank_seed=get('distributed', False)),
        launcher='pytorch' if get('distributed') else 'none',
        # mmengine's choice of the buffers
        model_wrapper_cfg=dict(
            type='MMDistributedDataParallel', device_ids=None, broadcast_buffers=False
        ),
        default_scope='mmengine',
        log_level='WARNING',
    )
    config.update(get('engine', {}))
    config['optim_wrapper'].update(get('optim_wrapper', {}))
    config['default_hooks']['checkpoint'].update(get('checkpoint', {}))
    return Config(config)


def runner_of(
    work_dir, resume=False, change=lambda config: None, build=Runner.from_cfg, **options
) -> Runner:
    """The runner of the tiny training, in this process; ``runner.warned`` is what it warns of."""
    config = make_config(str(work_dir), **options)
    config.resume = resume
    # Runners built within a second would share a logger otherwise.
    config.experiment_name = f'{work_dir}-{os.urandom(4).hex()}'
    change(config)
    runner = build(config)
    runner.warned = []
    runner.logger.warning = runner.warned.append
    return runner


def run_once(work_dir, options: dict, kill=None, resume=False) -> int:
    """Run :func:`train` in a process of its own; give its exit status."""
    process = process_context().Process(target=train, args=(str(work_dir), options, kill, resume))
    process.start()
    process.join(120)
    return process.exitcode


def train(work_dir: str, options: dict, kill: tuple[str, int] | None, resume: bool) -> None:
    """Run the training; write its end, as a checkpoint has it, to ``final_0.pt``."""
    torch.set_num_threads(1)
    hooks = [*options.get('hooks', [])]
    if 'Amp' in options.get('optim_wrapper', {}).get('type', ''):
        let_amp_run()
    if kill is not None and kill[0] in ('iteration', 'validation'):
        hooks.append(dict(type='KillHook', where=kill[0], count=kill[1]))
    elif kill is not None:
        kill_in_write(*kill)
    config = make_config(work_dir, **{**options, 'hooks': hooks})
    config.resume = resume
    runner = Runner.from_cfg(config)
    runner.train()
    runner.save_checkpoint(work_dir, 'final.pt')
    end = contents(Path(work_dir) / 'final.pt')
    torch.save({**end, 'model': end['state_dict']}, Path(work_dir) / 'final_0.pt')
