"""Negatives of their own on each rank, and one state."""

import pytest
import torch
from gloo_processes import run_on_ranks
from mmengine.dist import all_reduce_params
from torch import nn

from mmrank.losses import ISogCLRLoss

pytestmark = pytest.mark.processes

SAMPLES = 30
# Rows of each rank, step by step: even, an uneven last batch, an empty rank.
SIZES = {2: [(5, 5), (5, 2), (4, 0)], 3: [(4, 3, 3), (3, 3, 1), (2, 0, 2)]}
# Sample 7 is on several ranks, 2 is twice on one of them.
IDS = [[2, 7, 2, 0, 9, 7, 11, 12, 13, 29], [7, 3, 2, 9, 4, 7, 1], [0, 7, 9, 29]]


class Encoder(nn.Module):
    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4).double()
        self.loss = loss

    def forward(self, x1, x2, ids):
        return self.loss(self.linear(x1), self.linear(x2), ids)


def batch(step):
    g = torch.Generator().manual_seed(step)
    n = len(IDS[step])
    x1, x2 = torch.randn(2, n, 6, generator=g, dtype=torch.float64)
    return x1, x2, torch.tensor(IDS[step])


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for x1, x2, ids in batches:
        loss = model(x1, x2, ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    model = getattr(model, 'module', model)
    state = [x.clone() for x in model.loss.state_dict().values()]
    return [torch.stack(losses), model.linear.weight, *state]


def parts(rank, world_size):
    for step, sizes in enumerate(SIZES[world_size]):
        yield [x.split(sizes)[rank] for x in batch(step)]


def on_rank(rank, world_size):
    loss = ISogCLRLoss(SAMPLES, scope='local', beta0=0.7)
    model = Encoder(loss)
    values, _, *state = train(model, parts(rank, world_size))
    # What SyncBuffersHook does cannot change it.
    all_reduce_params(model.buffers(), op='mean')
    for x, y in zip(state, loss.state_dict().values()):
        assert torch.equal(x, y)
    return [values, *state]


@pytest.mark.slow
@pytest.mark.parametrize('world_size', [2, 3])
def test_local_negatives_share_the_state(world_size):
    local = run_on_ranks(on_rank, world_size, world_size)
    for _, *state in local:
        for got, want in zip(state, local[0][1:]):
            assert torch.equal(got, want)
    # Each rank has the loss of its own batch: that of a single process.
    first = [x.split(SIZES[world_size][0]) for x in batch(0)]
    for rank, (values, *_) in enumerate(local):
        alone = Encoder(ISogCLRLoss(SAMPLES, beta0=0.7))
        own = [x[rank] for x in first]
        torch.testing.assert_close(values[0], alone(*own).detach())
