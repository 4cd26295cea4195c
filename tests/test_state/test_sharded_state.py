"""Tables spread over ranks hold what a whole table holds, bit for bit."""

import shutil
import warnings

import pytest
import sample_states
import torch
from gloo_processes import run_on_ranks
from hypothesis import given
from hypothesis import strategies as st

from mmrank.errors import UserError
from mmrank.state import SampleRanks, load_shards, save_shard
from mmrank.state.shard_files import shard_names, whole_tables
from mmrank.state.sharding import Shard

CPU = torch.device('cpu')
SIZE = 23
STEPS = 6
# Rows of each rank, step by step: even, uneven, and ranks without any.
ROWS = {1: [(6,)], 2: [(3, 3), (4, 2), (6, 0)], 3: [(2, 2, 2), (0, 5, 1)]}


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 7))
def test_shards_of_two_divisions_meet(size, parts, others):
    rows = torch.arange(size)
    for part in range(parts):
        own = Shard(size, part, parts)
        assert own.rows == len(rows[own.place])
        found = []
        for other in range(others):
            theirs = Shard(size, other, others)
            common = own.common(theirs)
            if common is None:
                continue
            here, there = common
            both = rows[own.place][here]
            assert torch.equal(both, rows[theirs.place][there])
            found += both.tolist()
        assert sorted(found) == rows[own.place].tolist()


def temperature(storage):
    return sample_states.temperature(SIZE, beta0=0.7, beta1=0.6, eta=0.05, storage=storage)


def batch(step):
    """Samples of all ranks, some of them repeated, and what they measured."""
    g = torch.Generator().manual_seed(step)
    ids = torch.randint(SIZE // 2, (6,), generator=g) * 2 % SIZE
    news = torch.randn(2, 6, generator=g, dtype=torch.float64)
    news[0, 3] = torch.inf if step == 2 else news[0, 3]
    return ids, news


def visit(state, rank, sizes, group=None):
    """What each rank fetched in each step."""
    found = []
    for step in range(STEPS):
        counts = sizes[step % len(sizes)]
        begin = sum(counts[:rank])
        own = slice(begin, begin + counts[rank])
        ids, news = (x[..., own] for x in batch(step))
        if step % 2:
            state.prefetch(ids, CPU)
        if step == 3:
            # An update in between outdates what was asked for.
            state.store(torch.zeros(0, dtype=torch.long), torch.zeros(3, 0))
        if step == 5:
            # Asked for, but never used.
            state.prefetch(ids.clone(), CPU)
        entries = state.fetch(ids, CPU)
        found.append(entries)
        state.update(ids, entries, *news, list(counts), group)
    return torch.cat(found, dim=1)


def ranks_of(storage, rank, world, group):
    """Positives of two classes, known to all ranks."""
    state = SampleRanks(SIZE, 2, gamma=0.3, storage=storage)
    found = []
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        ids = torch.randint(SIZE, (2, 7), generator=g)
        entries = ids + SIZE * torch.arange(2)[:, None]
        g_of = torch.rand(2, 2, 7, generator=g, dtype=torch.float64)
        mask = torch.rand(2, 7, generator=g) < 0.7
        found.append(state.step(entries, g_of))
        state.update(entries, g_of, mask)
    return [*found, state.gathered('u_positive'), state.gathered('u_all')]


def on_rank(rank, world):
    group = torch.distributed.group.WORLD
    results = []
    for storage in ('device', 'sharded'):
        state = temperature(storage)
        results.append(visit(state, rank, ROWS[world], group))
        results += [state.gathered(name) for name in state.names]
        results.append(torch.tensor(state.num_bytes))
    results += ranks_of('sharded', rank, world, group)
    return results


@pytest.mark.processes
@pytest.mark.parametrize('world', [2, pytest.param(3, marks=pytest.mark.slow)])
def test_shards_equal_the_whole(world):
    whole = ranks_of('device', 0, 1, None)
    for rank, results in enumerate(run_on_ranks(on_rank, world, world)):
        for i in range(4):
            assert torch.equal(results[i], results[5 + i])
        alone = temperature('device')
        visit(alone, 0, ROWS[1])
        for name, values in zip(alone.names, results[6:9]):
            assert torch.equal(values, alone.column(name)), name
        assert results[4] == 12 * SIZE
        assert results[9] == 12 * Shard(SIZE, rank, world).rows
        for values, expected in zip(results[10:], whole, strict=True):
            assert torch.equal(values, expected)


def test_a_shard_of_other_processes_is_refused():
    state = temperature('sharded')
    assert state.shard.is_whole  # one process
    state.shard = Shard(SIZE, 0, 2)
    with pytest.raises(UserError, match='part 0 of 2, .* process 0 of 1'):
        state.fetch(torch.tensor([1]), CPU)


def test_rows_that_nobody_saves_are_mentioned_once():
    state = temperature('sharded')
    state.before_training()
    state.shard = Shard(SIZE, 0, 2)
    with pytest.warns(UserWarning, match='ShardedStateHook'):
        state.before_training()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        state.before_training()
        other = temperature('sharded')
        other.shard = Shard(SIZE, 0, 2)
        save_shard(other)
        other.before_training()


@pytest.mark.parametrize('parts', [2, 5])
def test_shards_load_into_a_whole_table(parts):
    """And a whole one into shards, without mmengine."""
    whole = temperature('device')
    ids = torch.arange(0, SIZE, 2)
    whole.update(ids, whole.fetch(ids, CPU), *torch.randn(2, len(ids)))
    saved, shards = whole.state_dict(), []
    for part in range(parts):
        shard = temperature('sharded')
        shard.shard = Shard(SIZE, part, parts)
        shard._columns = [x[: shard.shard.rows].clone() for x in shard._columns]
        shard.load_state_dict(saved)
        for name, rows in shard.own_rows().items():
            assert torch.equal(rows, whole.column(name)[part::parts])
        shards.append(shard)
    content = [save_shard(x) for x in shards]
    back = temperature('device')
    back.load_state_dict(shards[0].state_dict())
    with pytest.raises(UserError, match=f'{parts - 1} of them were not'):
        load_shards(back, content[1:2])
    load_shards(back, content)
    for name in whole.names:
        assert torch.equal(back.column(name), whole.column(name))
    fresh = temperature('device')
    fresh.load_state = False
    fresh.load_state_dict(shards[0].state_dict(), strict=False)
    fresh.train().fetch(ids, CPU)


def _flip(folder, names):
    data = bytearray((folder / names[1]).read_bytes())
    data[data.index(b'\x07' * 8)] ^= 1
    (folder / names[1]).write_bytes(data)


def _of_another_run(folder, names):
    other = shard_names('e.pth', 'b' * 12, 2)
    _write_shards(folder, other)
    (folder / other[1]).replace(folder / names[1])


def _without_a_table(folder, names):
    torch.save({}, folder / names[1])


DAMAGE = {
    'flipped': (_flip, 'has another checksum'),
    'of another run': (_of_another_run, 'of another checkpoint'),
    'another part': (lambda x, names: shutil.copy(x / names[0], x / names[1]), 'another part'),
    'one unnamed': (lambda _, names: names.pop(), 'does not name each of its shards once'),
    'no table': (_without_a_table, 'has 1 of 2 parts of loss.table'),
}


def _write_shards(folder, names):
    for part, name in enumerate(names):
        rows = torch.full((3 - part, 8), 7, dtype=torch.uint8)
        token = name.split('.')[2]
        table = dict(shard=[5, part, 2], rows=dict(table=rows), token=token)
        torch.save({'loss': table}, folder / name)


@pytest.mark.parametrize('damage', [None, *DAMAGE])
def test_only_whole_shards_of_a_checkpoint_are_read(tmp_path, damage):
    names = shard_names('e.pth', 'a' * 12, 2)
    _write_shards(tmp_path, names)
    if damage is None:
        assert (whole_tables(tmp_path / 'e.pth', names)['loss.table'] == 7).all()
        return
    spoil, message = DAMAGE[damage]
    spoil(tmp_path, names)
    with pytest.raises(UserError, match=message):
        whole_tables(tmp_path / 'e.pth', names)
