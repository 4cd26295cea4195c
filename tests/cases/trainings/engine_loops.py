"""One training in the loop of an engine: whole, resumed, on several processes, and through a kill.

    python tests/cases/trainings/engine_loops.py ENGINE FOLDER

A small ViT holds its losses: a ranking with moving averages, a contrastive loss with state a
sample, and one with a learnt temperature. A process has its share of the samples of a step. The
trainer of sentence-transformers has a model of its own, with one loss.

Each training gets a folder in FOLDER, with a checkpoint each three steps and, at the end,
``STEPS.pt``: all parameters and buffers. The processes are forked, so that an engine is imported
once; they are started again by the agent of torchrun, or by Ray.
"""

import importlib
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.launcher import LaunchConfig, elastic_launch
from torchvision.models import VisionTransformer

from mmrank.losses import CLIPLoss, SogCLRLoss, StableAPLoss

SAMPLES, STEPS, EVERY = 16, 6, 3
#: Samples of each process, by their number.
SHARES = {1: [16], 2: [10, 6], 3: [9, 4, 3], 4: [7, 4, 3, 2]}


def place():
    """Rank, and number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def own_samples():
    """(n,) indices of this process's samples."""
    rank, world = place()
    return torch.arange(SAMPLES).split(SHARES[world])[rank]


def kill_last_process(folder, step):
    """End the last process without a word where the folder says so, once."""
    rank, world = place()
    order = folder / f'kill_at_{step}'
    if rank == world - 1 and order.exists():
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Model(nn.Module):
    """Draws the samples of a step, and returns the sum of three losses."""

    def __init__(self, folder):
        super().__init__()
        torch.manual_seed(0)
        self.folder = folder
        self.net = VisionTransformer(8, 4, 2, 2, 16, 32, num_classes=8)
        self.net.heads = nn.Linear(16, 8)  # the head of torchvision begins with zeros
        self.head = nn.Linear(8, 1)
        self.losses = nn.ModuleList([StableAPLoss(), SogCLRLoss(SAMPLES), CLIPLoss()])

    def forward(self, step):
        step = int(step)
        kill_last_process(self.folder, step)
        own = own_samples()
        draws = torch.Generator().manual_seed(step)
        views = torch.randn(2, SAMPLES, 3, 8, 8, generator=draws)[:, own]
        one, other = self.net(views.flatten(0, 1)).chunk(2)
        ranking, contrast, pairs = self.losses
        loss = ranking(self.head(one), (own % 4 == 0).float()[:, None])
        return loss + contrast(one, other, own) + pairs(one, other)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def start_group():
    if 'RANK' in os.environ:
        dist.init_process_group('gloo')


def go_on(model, optimizer, start, steps, save, backward=torch.Tensor.backward):
    """Train from a step on; ``save(steps done)`` is called each three."""
    for step in range(start, steps):
        optimizer.zero_grad()
        backward(model(step))
        optimizer.step()
        if (step + 1) % EVERY == 0:
            save(step + 1)


def load_parts(file, model, optimizer):
    """Take what :func:`save_parts` wrote; the step to begin with."""
    if not file.exists():
        return 0
    known = torch.load(file)
    model.load_state_dict(known['model'])
    optimizer.load_state_dict(known['optimizer'])
    return known['step']


def save_parts(file, model, optimizer, step):
    parts = dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step)
    torch.save(parts, file.with_suffix('.part'))
    file.with_suffix('.part').replace(file)


def torchrun(folder, steps):
    start_group()
    model = whole = Model(folder)
    if place()[1] > 1:
        model = nn.parallel.DistributedDataParallel(whole)
    optimizer = optimizer_of(whole)
    file = folder / 'checkpoint.pth'

    def save(step):
        if place()[0] == 0:
            save_parts(file, whole, optimizer, step)

    go_on(model, optimizer, load_parts(file, whole, optimizer), steps, save)
    return whole


def last_step(folder):
    """The last checkpoint of an engine that writes folders, and its step."""
    saved = sorted(folder.glob('step_*'))
    if not saved:
        return None, 0
    return saved[-1], int(saved[-1].name.removeprefix('step_'))


def shard(model, mesh):
    """The blocks of the ViT one by one, then the rest and the losses."""
    for block in model.net.encoder.layers:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sharded(folder, steps, mesh):
    model = shard(Model(folder), mesh)
    optimizer = optimizer_of(model)

    def parts():
        return dict(zip(('model', 'optimizer'), get_state_dict(model, optimizer)))

    saved, start = last_step(folder)
    if saved:
        known = parts()
        dcp.load(known, checkpoint_id=saved)
        set_state_dict(
            model, optimizer, model_state_dict=known['model'], optim_state_dict=known['optimizer']
        )

    def save(step):
        dcp.save(parts(), checkpoint_id=folder / f'step_{step}')

    go_on(model, optimizer, start, steps, save)
    return model


def fsdp2(folder, steps):
    start_group()
    return sharded(folder, steps, init_device_mesh('cpu', (place()[1],)))


def hsdp(folder, steps):
    start_group()
    world = place()[1]
    copies = min(world, 2)
    names = 'copy', 'shard'
    mesh = init_device_mesh('cpu', (copies, world // copies), mesh_dim_names=names)
    return sharded(folder, steps, mesh)


def accelerate(folder, steps, plugin=None):
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType

    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    if plugin is not None:
        # accelerate shards on GPUs alone.
        accelerator.state.fsdp_plugin = plugin
        for state in (accelerator.state, PartialState()):
            state.distributed_type = DistributedType.FSDP
    whole = Model(folder)
    model, optimizer = accelerator.prepare(whole, optimizer_of(whole))
    saved, start = last_step(folder)
    if saved:
        accelerator.load_state(str(saved))

    def save(step):
        accelerator.save_state(str(folder / f'step_{step}'))

    go_on(model, optimizer, start, steps, save, accelerator.backward)
    return accelerator.unwrap_model(model)


def accelerate_fsdp2(folder, steps):
    from accelerate import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy='transformer_based_wrap',
        transformer_cls_names_to_wrap=['EncoderBlock'],
    )
    return accelerate(folder, steps, plugin)


def fabric(folder, steps):
    from lightning import Fabric

    world = int(os.environ.get('WORLD_SIZE', 1))
    engine = Fabric(accelerator='cpu', devices=world, strategy='ddp' if world > 1 else 'auto')
    engine.launch()
    whole = Model(folder)
    model, optimizer = engine.setup(whole, optimizer_of(whole))
    state = dict(model=model, optimizer=optimizer, step=0)
    file = folder / 'checkpoint.ckpt'
    if file.exists():
        engine.load(file, state)

    def save(step):
        state['step'] = step
        engine.save(file, state)

    go_on(model, optimizer, state['step'], steps, save, engine.backward)
    return whole


def lightning(folder, steps, strategy='ddp'):
    from lightning import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model(folder)

        def configure_model(self):
            mesh = self.device_mesh
            if mesh is not None:
                shard(self.model, mesh['data_parallel'])

        def training_step(self, _, __):
            return self.model(self.global_step)

        def configure_optimizers(self):
            return optimizer_of(self)

    module = Module()
    world = int(os.environ.get('WORLD_SIZE', 1))
    trainer = Trainer(
        max_steps=steps,
        accelerator='cpu',
        devices=world,
        strategy=strategy if 'RANK' in os.environ else 'auto',
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


def lightning_fsdp2(folder, steps):
    from lightning.pytorch.strategies import ModelParallelStrategy

    world = int(os.environ['WORLD_SIZE'])
    strategy = ModelParallelStrategy(data_parallel_size=world, tensor_parallel_size=1)
    return lightning(folder, steps, strategy)


def trainer_options(kind, folder, steps):
    return kind(
        str(folder),
        max_steps=steps,
        save_steps=EVERY,
        use_cpu=True,
        report_to='none',
        disable_tqdm=True,
        learning_rate=0.02,
        lr_scheduler_type='constant',
        max_grad_norm=0,
    )


def one_row(rows):
    return rows[0]


def transformers(folder, steps):
    from transformers import Trainer, TrainingArguments

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Model(folder)

        def forward(self, step):
            return dict(loss=self.model(step))

    class Loop(Trainer):
        def get_train_dataloader(self):
            steps = [dict(step=i) for i in range(99)]
            return torch.utils.data.DataLoader(steps, collate_fn=one_row)

        def create_optimizer(self, *_):
            self.optimizer = optimizer_of(self.model)
            return self.optimizer

    whole = Whole()
    resume = any(folder.glob('checkpoint-*'))
    loop = Loop(whole, trainer_options(TrainingArguments, folder, steps))
    loop.train(resume_from_checkpoint=resume)
    return whole.model


def sentence_transformers(folder, steps):
    import sentence_transformers as st
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.modules import BoW, Dense

    from mmrank.adapters import SaveLossState, SentenceContrastLoss

    words = [f'word{i}' for i in range(SAMPLES + 1)]
    torch.manual_seed(0)
    model = st.SentenceTransformer(modules=[BoW(words), Dense(len(words), 8)], device='cpu')

    class Loop(st.SentenceTransformerTrainer):
        def get_train_dataloader(self):
            own = own_samples().tolist()
            rows = [dict(anchor=words[i], positive=words[i + 1], label=i) for i in own]
            steps = [self.data_collator(rows)] * 99
            return torch.utils.data.DataLoader(steps, collate_fn=one_row)

        def training_step(self, *inputs):
            kill_last_process(folder, self.state.global_step)
            return super().training_step(*inputs)

    loss = SentenceContrastLoss(model, SogCLRLoss(SAMPLES, rho=7.0))
    loop = Loop(
        model,
        trainer_options(st.SentenceTransformerTrainingArguments, folder, steps),
        Dataset.from_dict(dict(anchor=words, positive=words, label=range(len(words)))),
        loss=loss,
        callbacks=[SaveLossState(loss)],
    )
    loop.train(resume_from_checkpoint=any(folder.glob('checkpoint-*')))
    return nn.ModuleDict(dict(model=model, loss=loss.loss))


def mmengine(folder, steps):
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Whole(BaseModel):
        def __init__(self):
            super().__init__()
            self.model = Model(folder)
            self.step = 0

        def forward(self, *_, **__):
            return dict(loss=self.model(runner.iter))

    # As mmrank.runners.build does it: mmengine would select a GPU by rank.
    wrapper = dict(type='MMDistributedDataParallel', broadcast_buffers=False, device_ids=None)
    start_group()
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
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.02, momentum=0.9)),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=EVERY, by_epoch=False)),
        launcher='pytorch' if place()[1] > 1 else 'none',
        resume=True,
        default_scope='mmengine',
        cfg=dict(model_wrapper_cfg=wrapper),
    )
    runner.train()
    return getattr(runner.model, 'module', runner.model).model


def ray(folder, steps):
    from ray import train

    model = train.torch.prepare_model(whole := Model(folder))
    optimizer = optimizer_of(whole)
    saved = train.get_checkpoint()
    start = 0
    if saved:
        with saved.as_directory() as at:
            start = load_parts(Path(at, 'checkpoint.pth'), whole, optimizer)

    def save(step):
        at = folder / f'rank_{place()[0]}'
        at.mkdir(exist_ok=True)
        save_parts(at / 'checkpoint.pth', whole, optimizer, step)
        own = train.Checkpoint.from_directory(at) if place()[0] == 0 else None
        train.report({}, checkpoint=own)

    go_on(model, optimizer, start, steps, save)
    return whole


#: What is imported before the processes are forked.
IMPORTED = {
    mmengine: 'mmengine.runner',
    lightning: 'lightning',
    lightning_fsdp2: 'lightning',
    fabric: 'lightning',
    accelerate: 'accelerate',
    accelerate_fsdp2: 'accelerate',
    transformers: 'transformers.trainer',
    sentence_transformers: 'sentence_transformers.sentence_transformer.trainer',
}


def work(loop, folder, steps):
    """What a process does."""
    torch.set_num_threads(1)
    state = {}
    for name, value in loop(folder, steps).state_dict().items():
        state[name] = value.full_tensor() if hasattr(value, 'full_tensor') else value
    if place()[0] == 0:
        torch.save(state, folder / f'{steps}.pt')


def on_ray(loop, folder, steps, processes):
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(
        lambda: work(loop, folder, steps),
        scaling_config=ScalingConfig(num_workers=processes, resources_per_worker=dict(CPU=0.1)),
        run_config=RunConfig(
            name='run', storage_path=str(folder), failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()


def on_torchrun(loop, folder, steps, processes):
    agent = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=folder.name,
        rdzv_backend='c10d',
        rdzv_endpoint='localhost:0',
        max_restarts=int(any(folder.glob('kill_at_*'))),
        start_method='fork',
        monitor_interval=0.1,
    )
    elastic_launch(agent, work)(loop, folder, steps)


def as_python(*job):
    process = multiprocessing.get_context('fork').Process(target=work, args=job)
    process.start()
    process.join()
    assert process.exitcode == 0, job


def train(loop, folder, steps=STEPS, processes=1):
    """Train in ``folder`` up to a step; it goes on with what the folder has."""
    folder.mkdir(exist_ok=True)
    if loop is ray:
        on_ray(loop, folder, steps, processes)
    elif processes > 1 or loop in (fsdp2, hsdp, accelerate_fsdp2, lightning_fsdp2):
        on_torchrun(loop, folder, steps, processes)
    else:
        as_python(loop, folder, steps)


def main():
    loop, folder = globals()[sys.argv[1]], Path(sys.argv[2])
    many, other = (4, 2) if loop is hsdp else (2, 3)
    if loop in IMPORTED:
        importlib.import_module(IMPORTED[loop])
    train(torchrun, folder / 'plain')
    train(loop, folder / 'one')
    train(loop, folder / 'resumed', EVERY)
    train(loop, folder / 'resumed')
    train(loop, folder / 'many', processes=many)
    killed = folder / 'killed'
    killed.mkdir()
    (killed / f'kill_at_{EVERY + 1}').touch()
    train(loop, killed, processes=many)
    train(loop, folder / 'other', EVERY, many)
    train(loop, folder / 'other', processes=other)


if __name__ == '__main__':
    main()
