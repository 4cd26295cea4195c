"""Re-weighting and the state of local ranks on two gloo processes."""

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import LDAMLoss, SOAPLoss

pytestmark = [pytest.mark.processes, pytest.mark.slow]

CLASSES, SAMPLES = 3, 30
COUNTS = dict(class_counts=[300, 20, 100], num_samples=500)


def deferred():
    loss = LDAMLoss(CLASSES, scale=2.0, reweight_beta=0.99, **COUNTS)
    loss.start_reweighting()
    return loss


# Rows of each rank, step by step: even, uneven, an empty rank.
SIZES = [(6, 6), (7, 3), (5, 0)]


class Net(nn.Module):
    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, CLASSES).double()
        self.loss = loss

    def forward(self, x, target, ids):
        extra = {}
        if isinstance(self.loss, SOAPLoss):
            extra['sample_idx'] = ids
        return self.loss(self.linear(x), target, **extra)


def batch(step):
    g = torch.Generator().manual_seed(step)
    n = sum(SIZES[step])
    x = torch.randn(n, 6, generator=g, dtype=torch.float64)
    target = (torch.rand(n, CLASSES, generator=g) < 0.4).long()
    # All positives of class 2 are on the second rank, where it has rows.
    target[: SIZES[step][0], 2] = 0
    # Few ids: a sample comes up on several ranks and twice on one.
    ids = torch.randint(0, SAMPLES // 3, (n,), generator=g)
    return x, target, ids


def part(rank, step):
    return [x.split(SIZES[step])[rank] for x in batch(step)]


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for values in batches:
        loss = model(*values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    model = getattr(model, 'module', model)
    state = [x.clone() for x in model.loss.state_dict().values()]
    return [torch.stack(losses), model.linear.weight, *state]


def on_rank(rank):
    model = DistributedDataParallel(Net(deferred()))
    results = train(model, (part(rank, s) for s in range(len(SIZES))))
    # Each rank ranks its own, and all keep the same averages.
    local = Net(SOAPLoss(SAMPLES, CLASSES, scope='local'))
    results += [
        local(*part(rank, 0)).detach(),
        *(x.clone() for x in local.loss.state_dict().values()),
    ]
    return results


@pytest.fixture(scope='module')
def ranks():
    return run_on_ranks(on_rank, 2)


def test_weights_of_the_classes_are_those_of_one_process(ranks):
    expected = train(Net(deferred()), map(batch, range(len(SIZES))))
    for results in ranks:
        assert len(results) == len(expected) + 3
        for got, want in zip(results, expected):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


def test_local_ranks_share_the_averages_of_all(ranks):
    local = [results[-3:] for results in ranks]
    for got, want in zip(local[0][1:], local[1][1:]):
        assert torch.equal(got, want)
    seen = []
    for rank, (value, *state) in enumerate(local):
        alone = Net(SOAPLoss(SAMPLES, CLASSES))
        own = part(rank, 0)
        torch.testing.assert_close(alone(*own).detach(), value)
        table = torch.stack(list(alone.loss.state_dict().values()))
        seen.append(table)
        # What only this rank has seen is as it has it.
        here = torch.stack(state)
        only = (table[1] > 0) & ~torch.isin(
            torch.arange(SAMPLES).repeat(CLASSES), part(1 - rank, 0)[2]
        )
        assert only.any()
        torch.testing.assert_close(here[:, only], table[:, only])
    assert ((seen[0] > 0) | (seen[1] > 0)).equal(here > 0)
