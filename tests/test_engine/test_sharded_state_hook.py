"""State in shards through mmengine's runner: saved, killed, resumed."""

import os
import shutil
import signal
from itertools import chain
from pathlib import Path

import pytest
import torch
from forked_processes import process_context
from gloo_processes import free_port, run_on_ranks
from mmengine.config import Config
from mmengine.model import BaseModel
from resume_run import kill_in_write
from tiny_runner import loader, make
from torch import nn
from torch.utils.data import Dataset

from mmrank.distributed import all_gather_rows, rows_and_dtype, world_group
from mmrank.engine.hooks import CheckpointMatchHook
from mmrank.engine.resume.checkpoint import find_damage, find_last_whole_checkpoint
from mmrank.errors import UserError
from mmrank.registry import MODELS
from mmrank.state import CrossBatchMemory
from mmrank.state.shard_files import named_shards, remove_lost_shards
from mmrank.state.sharding import Shard
from mmrank.visualization.temperatures import read_temperatures

SAMPLES, BATCH, SLOTS = 12, 6, 7
ROWS = ('log_s', 'tau', 'u')


class Views(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return dict(inputs=torch.randn(2, 6, generator=g), sample_idx=index)


class Model(BaseModel):
    """A loss with temperatures, and a memory of all ranks."""

    def __init__(self, storage, size=SAMPLES):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4)
        self.loss = MODELS.build(
            dict(type='mmrank.ISogCLRLoss', num_samples=size, eta=0.1, storage=storage)
        )
        self.memory = CrossBatchMemory(SLOTS, 4, storage=storage)

    def forward(self, inputs, sample_idx, mode='tensor'):
        view1, view2 = self.linear(inputs).unbind(1)
        rows, ids, group = view1.detach(), sample_idx, world_group()
        if group is not None:
            counts, _ = rows_and_dtype(rows, group)
            rows = all_gather_rows(rows, counts, group)
            ids = all_gather_rows(ids[:, None], counts, group)[:, 0]
        self.memory.enqueue(rows, ids % 3, ids)
        return dict(loss=self.loss(view1, view2, sample_idx))


WRAPPER = dict(type='MMDistributedDataParallel', device_ids=None, broadcast_buffers=False)


def train(folder, epochs, storage, world=1, resume=False):
    """Run it; all columns, whole, and the slots of this rank."""
    os.environ.setdefault('LOCAL_RANK', '0')  # mmengine's; there is no GPU
    hooks = [dict(type='mmrank.ShardedStateHook'), dict(type='EMAHook', update_buffers=True)]
    runner = make(
        Model(storage),
        folder,
        Views(),
        epochs,
        train_dataloader=loader(Views(), BATCH // world, seed=3),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.5, momentum=0.9)),
        default_hooks=dict(
            checkpoint=dict(type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=2)
        ),
        custom_hooks=hooks,
        launcher='none' if world == 1 else 'pytorch',
        resume=resume,
        cfg=Config(dict(work_dir=str(folder), model_wrapper_cfg=WRAPPER)),
    )
    runner.register_hook(CheckpointMatchHook())
    runner.train()
    model = getattr(runner.model, 'module', runner.model)
    columns = [model.loss.temperature.gathered(name) for name in ROWS]
    assert columns[1].unique().numel() == SAMPLES
    slots = [x.clone() for x in model.memory.own_rows().values()]
    return [model.linear.weight.detach(), *columns, *slots]


def _two_ranks(rank, root):
    whole = train(root / 'whole', 4, 'sharded', 2)
    half = train(root / 'half', 2, 'sharded', 2)
    if rank == 0:
        shutil.copytree(root / 'half', root / 'copy')
    # The shards are of the checkpoints that are kept, and of no other.
    again = train(root / 'half', 4, 'sharded', 2, resume=True)
    from_whole = train(root / 'single', 2, 'sharded', 2, resume=True)
    return [*whole, *half, *again, *from_whole]


def shards_in(folder):
    return sorted(x.name for x in Path(folder).glob('*.shard'))


@pytest.mark.processes
def test_resumes_on_any_number_of_processes(tmp_path):
    single = train(tmp_path / 'single', 2, 'device')
    n = len(single)
    ranks = run_on_ranks(_two_ranks, 2, tmp_path)
    halves = []
    for rank, results in enumerate(ranks):
        whole, half, again, from_whole = (results[i : i + n] for i in range(0, 4 * n, n))
        for got, expected in zip(again, whole, strict=True):
            assert torch.equal(got, expected)
        # A whole table loads into shards.
        place = Shard(SLOTS, rank, 2).place
        expected = [*single[:4], *(x[place] for x in single[4:])]
        for got, value in zip(from_whole, expected, strict=True):
            assert torch.equal(got, value)
        halves.append(half)
    # Shards load into a whole table, bit for bit.
    back = train(tmp_path / 'copy', 2, 'device', resume=True)
    for got, value in zip(back[:4], halves[0][:4]):
        assert torch.equal(got, value)
    for i in range(4, n):
        for rank in range(2):
            place = Shard(SLOTS, rank, 2).place
            assert torch.equal(back[i][place], halves[rank][i])
    # Each rank saved its half, and outdated shards went with their files.
    names = shards_in(tmp_path / 'half')
    kept = [named_shards(tmp_path / f'half/epoch_{i}.pth') for i in (3, 4)]
    assert names == sorted(chain(*kept))
    assert len(names) == 4
    content = torch.load(tmp_path / 'half' / kept[1][1], weights_only=True, mmap=True)
    assert content['loss.temperature']['shard'] == [SAMPLES, 1, 2]
    (found,) = read_temperatures(tmp_path / 'half/epoch_4.pth')
    assert torch.equal(torch.as_tensor(found.tau), ranks[0][n + 2 + n])
    _look_at_damage(tmp_path / 'half')
    assert content['loss.temperature']['rows']['tau'].shape == (SAMPLES // 2,)


def _half(rank, root, world, resume):
    return train(root, 2, 'sharded', world, resume)


@pytest.mark.processes
@pytest.mark.slow
def test_resumes_two_shards_on_three_processes(tmp_path):
    saved = run_on_ranks(_half, 2, tmp_path, 2, False)
    found = run_on_ranks(_half, 3, tmp_path, 3, True)
    slots = [torch.zeros(SLOTS, *x.shape[1:]) for x in saved[0][4:]]
    for i, whole in enumerate(slots):
        for rank in range(2):
            whole[Shard(SLOTS, rank, 2).place] = saved[rank][4 + i].float()
    for rank, results in enumerate(found):
        for got, value in zip(results[:4], saved[0][:4], strict=True):
            assert torch.equal(got, value)
        for got, whole in zip(results[4:], slots, strict=True):
            place = Shard(SLOTS, rank, 3).place
            assert torch.equal(got.float(), whole[place])


def _killed(rank, world, port, root, victim, where, count):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        'gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=world
    )
    if rank == victim:
        kill_in_write(where, count)
    train(root, 4, 'sharded', world)


def _resumed(rank, root):
    return train(root, 4, 'sharded', 2, resume=True)


def _uninterrupted(rank, root):
    return train(root, 4, 'sharded', 2)


def _kill(root, victim, where, count):
    context, port = process_context(), free_port()
    workers = [
        context.Process(target=_killed, args=(rank, 2, port, root, victim, where, count))
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    workers[victim].join(120)
    # The other one waits for it, or fails.
    for worker in workers:
        worker.kill()
        worker.join()
    assert workers[victim].exitcode == -signal.SIGKILL


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    ('victim', 'where', 'count'),
    [
        (0, 'whole', 6),  # all shards are there, the checkpoint is not
        (1, 'whole', 3),
        (1, 'half', 3),
        (0, 'pointer', 3),
    ],
)
def test_a_kill_leaves_a_checkpoint_with_its_shards(tmp_path, victim, where, count):
    root = tmp_path / 'killed'
    _kill(root, victim, where, count)
    last = find_last_whole_checkpoint(root)
    step = 3 if where == 'pointer' else 2
    assert last == str(root / f'epoch_{step}.pth')
    assert (root / 'epoch_3.pth').exists() == (step == 3)
    ranks = run_on_ranks(_resumed, 2, root)
    expected = run_on_ranks(_uninterrupted, 2, tmp_path / 'whole')
    for got, values in zip(ranks, expected):
        for one, other in zip(got, values, strict=True):
            assert torch.equal(one, other)
    kept = [named_shards(root / f'epoch_{i}.pth') for i in (3, 4)]
    assert shards_in(root) == sorted(chain(*kept))


def _look_at_damage(root):
    """What is said of a checkpoint that lost a shard."""
    last, before = root / 'epoch_4.pth', root / 'epoch_3.pth'
    assert find_damage(last) is None
    model = Model('device')
    content = torch.load(last, weights_only=False)['state_dict']
    assert content['loss.temperature.shards'].tolist() == [2, SAMPLES]
    model.load_state_dict(content)
    batch = torch.utils.data.default_collate([Views()[i] for i in range(4)])
    # To test needs no state; to train does.
    model.eval()(**batch)
    with pytest.raises(UserError, match='2 of them were not loaded'):
        model.train()(**batch)
    with pytest.raises(ValueError, match='12 samples, but num_samples=15'):
        Model('device', SAMPLES + 3).load_state_dict(content)
    (root / named_shards(last)[1]).write_bytes(b'')
    assert 'of-2.shard, which is empty' in find_damage(last)
    assert find_last_whole_checkpoint(root) == str(before)
    (root / named_shards(last)[1]).unlink()
    assert 'which cannot be read: No such file' in find_damage(last)
    lost = root / f'{before.name}.0123456789ab.0-of-2.shard'
    lost.write_bytes(b'')
    remove_lost_shards(root)
    assert not lost.exists()
    assert shards_in(root) == sorted(named_shards(before) + named_shards(last)[:1])
