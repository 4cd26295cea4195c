"""Losses whose state is spread over ranks, compared with those with a whole one.

Not one bit may differ: of the losses, the gradients, the weights and the state. That a whole state
on several ranks is that of one process: test_registered_losses_distributed.py and
test_retrieval_head_distributed.py.
"""

import sys
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks
from rank_batches import SIZES, RankModel, batch_of_all_ranks, share
from registered_losses import SAMPLES, Case
from small_retriever import DIM, STABLE_AP, build_head, samples
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from analysis_tools import sharded_state_cost
from mmrank.errors import UserError
from mmrank.state.sample_state import SampleState

pytestmark = pytest.mark.processes

NUM = dict(num_samples=SAMPLES)
CASES = [
    Case('SogCLRLoss', dict(NUM, bimodal=True), 'views'),
    Case('ISogCLRLoss', NUM, 'views'),
    Case('ISogCLRLoss', dict(NUM, scope='local', beta1=1.0), 'views'),
    Case('BimodalISogCLRLoss', NUM, 'views'),
    Case('PartialAUCLoss', dict(NUM, num_classes=3, lam_pos=0.7), 'rows'),
    Case('PartialAUCLoss', dict(NUM, num_classes=3, max_fpr=0.3, scope='local'), 'rows'),
    Case('SOAPLoss', dict(NUM, num_classes=3), 'rows'),
    Case('SOAPLoss', dict(NUM, num_classes=3, scope='local'), 'rows'),
    Case('SOAPLoss', dict(NUM, num_classes=3, mode='flatten'), 'rows'),
]


class _Model(RankModel):
    """Asks for the state of the samples before the layers run."""

    def __init__(self, case, storage):
        super().__init__(replace(case, settings=dict(case.settings, storage=storage)))

    def forward(self, batch):
        if batch.kind == 'views':
            self.loss.prefetch(batch.fixed[-1], torch.device('cpu'))
        return super().forward(batch)


def _train(case, storage, rank, sizes):
    model = DistributedDataParallel(_Model(case, storage))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    results = []
    for step, counts in enumerate(sizes):
        batch = batch_of_all_ranks(case, step, counts)
        optimizer.zero_grad()
        value = model(batch.entries(share(counts, rank)))
        value.backward()
        optimizer.step()
        results += [value.detach(), *(x.grad for x in model.parameters())]
        results = [x.clone() for x in results]
    results += [x.detach() for x in model.parameters()]
    states = [x for x in model.modules() if isinstance(x, SampleState)]
    for state in states:
        results += [state.gathered(name).double() for name in state.names]
    return results, sum(x.num_bytes for x in states)


def _search(storage, rank, sizes):
    """A retrieval head with a memory."""
    torch.manual_seed(0)
    head = build_head(dict(STABLE_AP, rho='auto'), memory=dict(size=14, dim=DIM, storage=storage))
    linear = nn.Linear(6, DIM).double()
    results = []
    for step, counts in enumerate(sizes):
        g = torch.Generator().manual_seed(step)
        x = torch.randn(12, 6, generator=g, dtype=torch.float64)
        ids = torch.randperm(17, generator=g)[:12]
        own = share(counts, rank)
        batch = samples((ids % 4)[own].tolist(), ids[own].tolist())
        loss = head.loss(linear(x[own]), batch)['loss']
        results += [loss.detach(), *torch.autograd.grad(loss, linear.weight)]
    entries = head.memory.entries(rank, len(sizes[0]))
    results += [entries.embeddings, entries.labels, entries.sample_ids]
    if storage == 'sharded':
        with pytest.raises(UserError, match='searched by all processes'):
            head.memory.entries()
        # Once more than the slots: what others keep is written to one row.
        assert len(head.memory.labels) == len(entries.labels) + 1
        # Nor is it cast, or averaged over ranks by what averages buffers.
        head.half()
        assert head.memory.embeddings.dtype == torch.float32
        assert {n for n, _ in head.memory.named_buffers()} == {'next_slot', 'num_batches'}
    return results


def _bytes_sent(rank, world):
    """What this rank sends to others in a step of images and texts."""
    sent = []
    send = dist.all_to_all_single

    def counted(output, rows, taken=None, given=None, **kwargs):
        given = given or [len(rows) // world] * world
        row = rows[:1].numel() * rows.element_size() if len(rows) else 0
        sent.append(row * (sum(given) - given[rank]))
        return send(output, rows, taken, given, **kwargs)

    dist.all_to_all_single = counted
    model = _Model(CASES[3], 'sharded')
    counts = SIZES[world][0]
    model(batch_of_all_ranks(CASES[3], 0, counts).entries(share(counts, rank)))
    dist.all_to_all_single = send
    return torch.tensor(sum(sent))


def _on_rank(rank, world):
    found = [_bytes_sent(rank, world)]
    for case in CASES:
        whole, its_bytes = _train(case, 'device', rank, SIZES[world])
        shard, own_bytes = _train(case, 'sharded', rank, SIZES[world])
        assert len(whole) == len(shard)
        same = [torch.equal(x, y) for x, y in zip(whole, shard)]
        found += [torch.tensor(same), torch.tensor([its_bytes, own_bytes])]
    pair = [_search(x, rank, SIZES[world]) for x in ('device', 'sharded')]
    same = [torch.equal(x, y) for x, y in zip(*pair)]
    return [*found, torch.tensor(same)]


@pytest.mark.parametrize('world', [2, pytest.param(3, marks=pytest.mark.slow)])
def test_shards_change_no_bit(world):
    ids = batch_of_all_ranks(CASES[3], 0, SIZES[world][0]).fixed[-1]
    sent, received = sharded_state_cost.sharded_traffic(list(ids.split(SIZES[world][0])))
    assert sent.sum() == received.sum()
    ranks = run_on_ranks(_on_rank, world, world)
    for rank, (traffic, *found, search) in enumerate(ranks):
        assert traffic == sent[rank]
        for case, same, sizes in zip(CASES, found[::2], found[1::2]):
            assert same.all(), f'{case}: {same}'
            whole, own = sizes.tolist()
            # 40 samples and 3 classes: a shard has at most one row more.
            assert whole / world - 24 <= own <= whole / world + 24
        assert search.all(), search


def test_tool_writes_the_table(tmp_path, monkeypatch, capsys):
    arguments = ['--ranks', '1', '4', '--samples', '1000', '--out-dir']
    monkeypatch.setattr(sys, 'argv', ['cost', *arguments, str(tmp_path)])
    assert not sharded_state_cost.main()
    rows = (tmp_path / 'sharded_state_cost.csv').read_text().splitlines()[1:]
    one, four = ([float(x) for x in row.split(',')] for row in rows)
    # 24 bytes a pair; nothing is sent where there is one process.
    assert one[1:3] == [24e-6, 0]
    assert four[1] == 6e-6
    # Three of four pairs are on others: 8 + 32 bytes up and 24 down.
    assert 512 * 0.7 * 64 < 1e3 * four[2] < 512 * 0.8 * 64 * 1.2
    assert 'state GB a rank' in capsys.readouterr().out
    monkeypatch.setattr(sys, 'argv', ['cost', '--batch', '0'])
    assert sharded_state_cost.main() == 2
    assert '--batch must be > 0' in capsys.readouterr().err


@pytest.mark.parametrize('name', ['SOAPLoss', 'ISogCLRLoss'])
def test_one_process_has_all(name):
    """There a loss with shards is one without."""
    case = next(x for x in CASES if x.name == name)
    pair = [_Model(case, x) for x in ('device', 'sharded')]
    batch = batch_of_all_ranks(case, 0, (7, 5))
    assert torch.equal(*(x(batch) for x in pair))
    states = [x.loss.state_dict() for x in pair]
    assert states[0].keys() == states[1].keys()
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key])
