"""Several gloo processes give what one process gives.

Starting processes costs most of the time, so one set runs all cases.
"""

import itertools

import pytest
import torch
from gloo_processes import run_on_ranks
from mmengine.dist import all_reduce_params
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import (
    BarlowTwinsLoss,
    BimodalISogCLRLoss,
    CLIPLoss,
    CyCLIPLoss,
    FlatCLRLoss,
    InfoNCELoss,
    ISogCLRLoss,
    SimCoLoss,
    SogCLRLoss,
    SpectralContrastiveLoss,
    VICRegLoss,
)

pytestmark = pytest.mark.processes

SAMPLES = 30
BIMODAL = dict(rho=0.4, tau_init=0.3, tau0=0.05, tau_max=2.0, eta=0.05)
CASES = {
    'info_nce': lambda: InfoNCELoss(tau=0.3),
    'clip': lambda: InfoNCELoss(tau=0.3, bimodal=True, loss_weight=0.5),
    'sogclr': lambda: SogCLRLoss(SAMPLES, tau=0.2, beta0=0.7),
    'isogclr': lambda: ISogCLRLoss(
        SAMPLES, eta=0.05, beta0=0.7, beta1=0.6, storage='host'
    ),
    'bimodal': lambda: BimodalISogCLRLoss(SAMPLES, beta0=0.8, **BIMODAL),
    'flat': lambda: FlatCLRLoss(tau=0.3),
    'simco': lambda: SimCoLoss(tau=0.2),
    'spectral': lambda: SpectralContrastiveLoss(loss_weight=0.5),
    'vicreg': lambda: VICRegLoss(1.0, 1.0, 1.0),
    'barlow': lambda: BarlowTwinsLoss(0.1, loss_weight=0.1),
    'clip_learned': lambda: CLIPLoss(tau=0.3),
    'cyclip': lambda: CyCLIPLoss(tau=0.3, cross_weight=0.5),
    'bimodal_sogclr': lambda: SogCLRLoss(SAMPLES, tau=0.2, bimodal=True),
}
# Rows of each rank, step by step: even, an uneven last batch, an empty rank.
SIZES = {2: [(5, 5), (5, 2), (4, 0)], 3: [(4, 3, 3), (3, 3, 1), (2, 0, 2)]}
# Sample 7 is on several ranks, 2 is twice on one of them.
IDS = [
    [2, 7, 2, 0, 9, 7, 11, 12, 13, 29],
    [7, 3, 2, 9, 4, 7, 1],
    [0, 7, 9, 29],
]


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
    results = []
    for make in CASES.values():
        model = DistributedDataParallel(Encoder(make()))
        results += train(model, parts(rank, world_size))
    # The state is equal on all ranks even where negatives are their own, and
    # what SyncBuffersHook does cannot change it.
    loss = ISogCLRLoss(SAMPLES, scope='local', beta0=0.7)
    model = Encoder(loss)
    values, _, *state = train(model, parts(rank, world_size))
    all_reduce_params(model.buffers(), op='mean')
    for x, y in zip(state, loss.state_dict().values()):
        assert torch.equal(x, y)
    return [*results, values, *state]


def one_process():
    for make in CASES.values():
        yield train(Encoder(make()), map(batch, range(len(IDS))))


@pytest.mark.parametrize(
    'world_size', [2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_ranks_equal_one_process(world_size):
    ranks = run_on_ranks(on_rank, world_size, world_size)
    expected = list(itertools.chain(*one_process()))
    for rank in ranks:
        for got, want in zip(rank, expected):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    local = [rank[len(expected) :] for rank in ranks]
    for _, *state in local:
        for got, want in zip(state, local[0][1:]):
            assert torch.equal(got, want)
    # Each rank has the loss of its own batch: that of a single process.
    first = [x.split(SIZES[world_size][0]) for x in batch(0)]
    for rank, (values, *_) in enumerate(local):
        alone = Encoder(ISogCLRLoss(SAMPLES, beta0=0.7))
        own = [x[rank] for x in first]
        torch.testing.assert_close(values[0], alone(*own).detach())
