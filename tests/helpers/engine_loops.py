"""One training in the loop of an engine, started by python or torchrun; it resumes where it ended.

    python tests/helpers/engine_loops.py ENGINE FOLDER STEPS

The model holds its losses: a ranking with moving averages, a contrastive loss with state a sample,
and one with a learnt temperature. A process has its share of the samples of a step.
FOLDER gets a checkpoint each three steps and, at the end, ``STEPS.pt``: all parameters and buffers.
With ``KILL_AT`` the last process kills itself there, in its first life.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from mmrank.losses import CLIPLoss, SogCLRLoss, StableAPLoss

SAMPLES, EVERY = 16, 3
#: Samples of each process, by their number.
SHARES = {1: [16], 2: [10, 6], 3: [9, 4, 3]}
RANK, WORLD = (int(os.environ.get(x, y)) for x, y in (('RANK', 0), ('WORLD_SIZE', 1)))


class Model(nn.Module):
    """Draws the samples of a step, and returns the sum of three losses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(20, 8)
        self.head = nn.Linear(8, 1)
        self.losses = nn.ModuleList([StableAPLoss(), SogCLRLoss(SAMPLES), CLIPLoss()])

    def forward(self, step):
        step = int(step)
        if (
            step == int(os.environ.get('KILL_AT', -1))
            and RANK == WORLD - 1
            and os.environ.get('TORCHELASTIC_RESTART_COUNT') == '0'
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        begin = sum(SHARES[WORLD][:RANK])
        own = torch.arange(begin, begin + SHARES[WORLD][RANK])
        views = torch.randn(2, SAMPLES, 20, generator=torch.Generator().manual_seed(step))[:, own]
        one, other = self.net(views)
        ranking, contrast, pairs = self.losses
        loss = ranking(self.head(one), (own % 4 == 0).float()[:, None])
        return loss + contrast(one, other, own) + pairs(one, other)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def torchrun(folder, steps):
    model = whole = Model()
    if WORLD > 1:
        dist.init_process_group('gloo')
        model = nn.parallel.DistributedDataParallel(whole)
    optimizer = optimizer_of(whole)
    file = folder / 'checkpoint.pth'
    start = 0
    if file.exists():
        known = torch.load(file)
        whole.load_state_dict(known['model'])
        optimizer.load_state_dict(known['optimizer'])
        start = known['step']
    for step in range(start, steps):
        optimizer.zero_grad()
        model(step).backward()
        optimizer.step()
        if (step + 1) % EVERY == 0 and RANK == 0:
            parts = dict(model=whole.state_dict(), optimizer=optimizer.state_dict(), step=step + 1)
            torch.save(parts, file.with_suffix('.part'))
            file.with_suffix('.part').replace(file)
    return whole


def accelerate(folder, steps):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    whole = Model()
    model, optimizer = accelerator.prepare(whole, optimizer_of(whole))
    saved = sorted(folder.glob('step_*'))
    start = 0
    if saved:
        accelerator.load_state(str(saved[-1]))
        start = int(saved[-1].name.removeprefix('step_'))
    for step in range(start, steps):
        optimizer.zero_grad()
        accelerator.backward(model(step))
        optimizer.step()
        if (step + 1) % EVERY == 0:
            accelerator.save_state(str(folder / f'step_{step + 1}'))
    return whole


def fabric(folder, steps):
    from lightning import Fabric

    engine = Fabric(accelerator='cpu', devices=WORLD, strategy='ddp' if WORLD > 1 else 'auto')
    engine.launch()
    whole = Model()
    model, optimizer = engine.setup(whole, optimizer_of(whole))
    state = dict(model=model, optimizer=optimizer, step=0)
    file = folder / 'checkpoint.ckpt'
    if file.exists():
        engine.load(file, state)
    for step in range(state['step'], steps):
        optimizer.zero_grad()
        engine.backward(model(step))
        optimizer.step()
        if (step + 1) % EVERY == 0:
            state['step'] = step + 1
            engine.save(file, state)
    return whole


def lightning(folder, steps):
    from lightning import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, _, __):
            return self.model(self.global_step)

        def configure_optimizers(self):
            return optimizer_of(self)

    module = Module()
    trainer = Trainer(
        max_steps=steps,
        accelerator='cpu',
        devices=WORLD,
        strategy='ddp' if WORLD > 1 else 'auto',
        use_distributed_sampler=False,
        callbacks=[ModelCheckpoint(folder, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = folder / 'last.ckpt'
    # An epoch is three steps.
    trainer.fit(module, range(EVERY), ckpt_path=last if last.exists() else None)
    return module.model


def transformers(folder, steps):
    from transformers import Trainer, TrainingArguments

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def forward(self, step):
            return dict(loss=self.model(step))

    class Loop(Trainer):
        def get_train_dataloader(self):
            steps = [dict(step=i) for i in range(99)]
            return torch.utils.data.DataLoader(steps, collate_fn=lambda rows: rows[0])

        def create_optimizer(self, *_):
            self.optimizer = optimizer_of(self.model)
            return self.optimizer

    options = TrainingArguments(
        str(folder),
        max_steps=steps,
        save_steps=EVERY,
        use_cpu=True,
        report_to='none',
        disable_tqdm=True,
        lr_scheduler_type='constant',
        max_grad_norm=0,
    )
    whole = Whole()
    resume = any(folder.glob('checkpoint-*'))
    Loop(whole, options).train(resume_from_checkpoint=resume)
    return whole.model


def mmengine(folder, steps):
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Whole(BaseModel):
        def __init__(self):
            super().__init__()
            self.model = Model()
            self.step = 0

        def forward(self, *_, **__):
            return dict(loss=self.model(runner.iter))

    # As mmrank.apis.entry_point does it: mmengine would select a GPU by rank.
    wrapper = dict(type='MMDistributedDataParallel', broadcast_buffers=False, device_ids=None)
    if WORLD > 1:
        dist.init_process_group('gloo')
    runner = Runner(
        Whole(),
        str(folder),
        train_dataloader=dict(
            dataset=[dict(inputs=0)] * 99,
            sampler=dict(type='InfiniteSampler', shuffle=False),
            batch_size=1,
            num_workers=0,
        ),
        train_cfg=dict(by_epoch=False, max_iters=steps),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9)),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=EVERY, by_epoch=False)),
        launcher='pytorch' if WORLD > 1 else 'none',
        resume=True,
        default_scope='mmengine',
        cfg=dict(model_wrapper_cfg=wrapper),
    )
    runner.train()
    return getattr(runner.model, 'module', runner.model).model


def main():
    engine, folder, steps = sys.argv[1:]
    folder = Path(folder)
    model = globals()[engine](folder, int(steps))
    if RANK == 0:
        torch.save(model.state_dict(), folder / f'{steps}.pt')


if __name__ == '__main__':
    main()
