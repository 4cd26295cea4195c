"""Two-tower tables in shards train, save and resume as whole ones."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from gloo_processes import run_on_ranks
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from small_models import table, two_tower
from tower_runs import by_iterations, tower_config

from mmrank.engine.sharded.tables import ShardedTablesHook
from mmrank.errors import UserError
from mmrank.models import ShardedEmbeddingTower
from mmrank.models.two_tower.sharded_embedding_tower import sharded_parameters

pytest.importorskip('torch.distributed.tensor')
SIZES = dict(left=13, right=7)
ROOT = Path(__file__).parents[2]
ML1M = ROOT / 'data' / 'ml1m'  # where the config looks for it
if not ML1M.is_dir():
    ML1M = ROOT.parent / 'shared' / 'data' / 'ml1m'
CONFIG = 'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'


@HOOKS.register_module(force=True)
class TableLossHook(Hook):
    """Keeps the loss of every iteration."""

    seen: list = []  # noqa: RUF012

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        """Append it."""
        self.seen.append(outputs['loss'].item())


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('pairs')
    rng = np.random.default_rng(0)
    places = rng.permutation(13 * 7)[:60]
    lines = [f'u{x // 7},i{x % 7}' for x in places]
    # Every entity occurs.
    lines += [f'u{u},i{u % 7}' for u in range(13)]
    held = ['u0,i3', 'u1,i4', 'u5,i6']
    lines = [x for x in dict.fromkeys(lines) if x not in held]
    (folder / 'train.csv').write_text('user,item\n' + '\n'.join(lines))
    (folder / 'test.csv').write_text('user,item\n' + '\n'.join(held))
    return folder


def settings(folder, work_dir, tower, hidden=False, resume=None):
    towers = {}
    for side, size in SIZES.items():
        towers[side] = dict(table(size), type=f'mmrank.{tower}')
        if hidden:
            towers[side] = dict(
                type='mmrank.MLPTower', stem=towers[side], stem_channels=4, channels=[3]
            )
    loss = dict(type='mmrank.InBatchLoss', mode='unbiased', pointwise='logistic')
    distributed = torch.distributed.is_initialized()
    sharded = tower == 'ShardedEmbeddingTower'
    wrapper = 'mmrank.ShardedTablesParallel' if sharded else 'MMDistributedDataParallel'
    config = tower_config(
        folder,
        work_dir,
        two_tower(**towers, loss=loss, top_k=5),
        launcher='pytorch' if distributed else 'none',
        model_wrapper_cfg=dict(type=wrapper, device_ids=None),
        default_hooks=dict(
            checkpoint=dict(type='mmrank.AtomicCheckpointHook', interval=2, by_epoch=False)
        ),
        custom_hooks=[
            dict(type='mmrank.PairCountsHook'),
            dict(type='mmrank.RNGStateHook'),
            dict(type='mmrank.ShardedTablesHook'),
            dict(type='TableLossHook'),
        ],
        randomness=dict(seed=1),
        load_from=None if resume is None else str(resume),
        resume=resume is not None,
    )
    config.train_dataloader.batch_size = 10 if distributed else 20
    return by_iterations(config, 6)


def train(rank, *args):
    """Losses, tables and the bytes of them and their optimiser state."""
    os.environ.setdefault('LOCAL_RANK', str(rank))
    TableLossHook.seen = []
    cfg = settings(*args)
    runner = Runner.from_cfg(cfg)
    runner.train()
    sharded = sharded_parameters(runner.model)
    state = runner.optim_wrapper.optimizer.state
    rows = [(x.to_local().shape[0], state[x]['sum'].to_local().shape[0]) for x in sharded.values()]
    figures = list(runner.val_loop.run().values())
    return [torch.tensor(TableLossHook.seen), torch.tensor(rows), torch.tensor(figures)]


def saved(path):
    return torch.load(path, map_location='cpu', weights_only=False)


def assert_close(one, other, tolerance):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if not isinstance(value, torch.Tensor):
            continue
        assert type(value) is type(other[key])
        gap = (value.double() - other[key].double()).abs().max()
        assert gap <= tolerance, key


def compare(one, other, tolerance=1e-6):
    """Checkpoints: weights, and the state of the optimiser."""
    one, other = saved(one), saved(other)
    assert_close(one['state_dict'], other['state_dict'], tolerance)
    states = [x['optimizer']['state'] for x in (one, other)]
    assert states[0].keys() == states[1].keys()
    for number in states[0]:
        assert_close(states[0][number], states[1][number], tolerance)


@pytest.mark.slow
@pytest.mark.parametrize('hidden', [False, True])
def test_training_is_that_of_whole_tables(folder, tmp_path, hidden):
    names = ('one', 'whole', 'sharded', 'again', 'back')
    paths = {name: tmp_path / name for name in names}
    plain, shards = 'EmbeddingTower', 'ShardedEmbeddingTower'
    one, _, figures = train(0, folder, paths['one'], plain, hidden)
    run_on_ranks(train, 2, folder, paths['whole'], plain, hidden)
    ranks = run_on_ranks(train, 2, folder, paths['sharded'], shards, hidden)
    # Each rank has its rows, of the table and of Adagrad's sums.
    assert ranks[0][1].tolist() == [[7, 7], [4, 4]]
    assert ranks[1][1].tolist() == [[6, 6], [3, 3]]
    for losses, _, found in ranks:
        assert (losses - one).abs().max() < 1e-5
        assert torch.equal(found, figures)
    for name in ('iter_2.pth', 'iter_6.pth'):
        compare(paths['sharded'] / name, paths['whole'] / name)
        compare(paths['sharded'] / name, paths['one'] / name, 1e-5)
    # Resumed: on as many ranks bit for bit, on one up to rounding.
    resume = paths['sharded'] / 'iter_2.pth'
    again = run_on_ranks(train, 2, folder, paths['again'], shards, hidden, resume)
    assert torch.equal(again[0][0], ranks[0][0][2:])
    last = 'iter_6.pth'
    compare(paths['again'] / last, paths['sharded'] / last, 0)
    train(0, folder, paths['back'], plain, hidden, resume)
    compare(paths['back'] / last, paths['one'] / last, 1e-5)


def test_in_one_process_it_is_the_plain_tower(folder, tmp_path):
    one = train(0, folder, tmp_path / 'a', 'EmbeddingTower')
    other = train(0, folder, tmp_path / 'b', 'ShardedEmbeddingTower')
    assert torch.equal(one[0], other[0])
    compare(tmp_path / 'a' / 'iter_6.pth', tmp_path / 'b' / 'iter_6.pth', 0)
    tower = ShardedEmbeddingTower(5, 2)
    with pytest.raises(ValueError, match='ids'):
        tower(dict(ids=torch.tensor([5])))


def _unwrapped(rank, folder, work_dir):
    os.environ['LOCAL_RANK'] = str(rank)
    cfg = settings(folder, work_dir, 'ShardedEmbeddingTower', hidden=True)
    runner = Runner.from_cfg(cfg)
    runner.model = runner.model.module
    with pytest.raises(UserError, match='mmrank.ShardedTablesParallel'):
        ShardedTablesHook().before_run(runner)
    return [torch.ones(1)]


@pytest.mark.slow
def test_another_wrapper_is_refused(folder, tmp_path):
    run_on_ranks(_unwrapped, 2, folder, tmp_path)


def _movielens(rank, work_dir, tower, steps):
    """Losses and the metrics after some steps of the config's training."""
    cfg = Config.fromfile(ROOT / CONFIG)
    own = settings(ML1M, work_dir, tower)
    for name in ('launcher', 'model_wrapper_cfg', 'custom_hooks', 'log_level'):
        cfg[name] = own[name]
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.dataset.data_root = str(ML1M)
    cfg.train_dataloader.batch_size = cfg.train_dataloader.batch_size // 2
    cfg.train_dataloader.sampler.infinite = True
    for side in SIZES:
        cfg.model[side].type = f'mmrank.{tower}'
    cfg.train_cfg = dict(by_epoch=False, max_iters=steps, val_interval=steps)
    cfg.default_hooks = dict(
        checkpoint=dict(type='mmrank.AtomicCheckpointHook', interval=steps, by_epoch=False)
    )
    cfg.work_dir = str(work_dir)
    cfg.experiment_name = f'movielens_{tower}'
    os.environ['LOCAL_RANK'] = str(rank)
    TableLossHook.seen = []
    runner = Runner.from_cfg(cfg)
    runner.train()
    figures = list(runner.val_loop.run().values())
    return [torch.tensor(TableLossHook.seen), torch.tensor(figures)]


@pytest.mark.slow
@pytest.mark.skipif(not ML1M.is_dir(), reason='needs data/ml1m')
def test_movielens(tmp_path):
    found = {}
    for tower in ('EmbeddingTower', 'ShardedEmbeddingTower'):
        found[tower] = run_on_ranks(_movielens, 2, tmp_path / tower, tower, 4)
    whole, sharded = found.values()
    for one, other in zip(whole, sharded):
        assert torch.allclose(one[0], other[0], rtol=1e-6, atol=0)
        assert torch.allclose(one[1], other[1], rtol=0, atol=0.05)
    paths = [tmp_path / tower / 'iter_4.pth' for tower in found]
    compare(*paths)
