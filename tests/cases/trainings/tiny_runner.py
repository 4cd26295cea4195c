"""Short trainings by mmengine's runner, for tests of hooks."""

import logging
import os
from types import SimpleNamespace

import torch
from mmengine.runner import Runner
from torch import nn


def loader(dataset, batch_size=8, shuffle=True, **sampler) -> dict:
    """Config of a loader that stacks images."""
    return dict(
        dataset=dataset,
        batch_size=batch_size,
        num_workers=0,
        collate_fn=dict(type='default_collate'),
        sampler=dict(type='DefaultSampler', shuffle=shuffle, **sampler),
    )


def make(model, work_dir, dataset, epochs=2, batch_size=8, shuffle=True, **settings) -> Runner:
    """A runner of a model; ``settings`` are its own."""
    torch.manual_seed(0)
    defaults = dict(
        model=model,
        work_dir=str(work_dir),
        train_dataloader=loader(dataset, batch_size, shuffle),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        train_cfg=dict(by_epoch=True, max_epochs=epochs),
        default_hooks=dict(logger=dict(type='LoggerHook', interval=2)),
        randomness=dict(seed=0),
        log_level='ERROR',
        default_scope='mmengine',
        experiment_name=f'{work_dir}-{os.urandom(4).hex()}',
    )
    return Runner(**{**defaults, **settings})


def train(*args, **settings) -> Runner:
    """The runner of :func:`make` after its training."""
    runner = make(*args, **settings)
    runner.train()
    return runner


def stand_in(dataset, *losses, batch_size=1, **parts) -> SimpleNamespace:
    """What a hook sees of a runner that trains losses on a data set; it logs warnings alone."""
    data = SimpleNamespace(dataset=dataset, batch_size=batch_size)
    return SimpleNamespace(
        model=nn.ModuleList(losses),
        train_loop=SimpleNamespace(dataloader=data),
        logger=logging.getLogger('mmrank-test'),
        **parts,
    )
