"""Keys that pass from rank to rank."""

import sys
from pathlib import Path

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import distributed as dist

from mmrank.losses import CLIPLoss, CyCLIPLoss
from mmrank.losses.contrastive import terms as log_mean_exp
from mmrank.losses.contrastive.ring import KeyRing
from mmrank.losses.contrastive.siglip import sigmoid_losses
from mmrank.losses.contrastive.terms import negative_terms, two_modality_terms, two_view_terms

COUNTS = {1: (7,), 2: (3, 4), 3: (3, 0, 4)}


def rows(seed, dim=5):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(7, dim, generator=g, dtype=torch.float64)


def on_rank(rank, world):
    counts = COUNTS[world]
    mine = [x.split(counts)[rank].clone() for x in (rows(0), torch.arange(7), rows(1))]
    ring = KeyRing(counts, dist.group.WORLD)
    blocks = [[y.clone() for y in x] for x in ring.blocks(*mine)]
    found = []
    for held, gradient in ring.blocks_and_gradients(found, *mine):
        # What a rank adds says who it is, and to which key.
        gradient += 10**rank * held[0]
    keys, ids, others = (torch.cat(x) for x in zip(*blocks))
    return [keys, ids, others, *found]


@pytest.mark.processes
@pytest.mark.parametrize('world', [pytest.param(2, marks=pytest.mark.slow), 3])
def test_every_rank_sees_every_key_and_gradients_come_home(world):
    counts = COUNTS[world]
    results = run_on_ranks(on_rank, world, world)
    for rank, (keys, ids, others, gradient) in enumerate(results):
        order = [(rank - i) % world for i in range(world)]
        parts = torch.arange(7).split(counts)
        expected = torch.cat([parts[i] for i in order])
        assert torch.equal(ids, expected)
        assert torch.equal(keys, rows(0)[expected])
        assert torch.equal(others, rows(1)[expected])
        factor = sum(10**i for i in range(world))
        own = rows(0).split(counts)[rank]
        torch.testing.assert_close(gradient, factor * own)


def test_one_process_has_one_block():
    ring, keys = KeyRing([7]), rows(0)
    ((held,),) = ring.blocks(keys)
    assert held is keys
    found = []
    for (held,), gradient in ring.blocks_and_gradients(found, keys):
        gradient += 2 * held
    assert torch.equal(found[0], 2 * keys)


@pytest.mark.parametrize('least', [1, 10**6])
@pytest.mark.parametrize('ids', [[0, 1, 2, 3, 4, 5, 6], [4, 1, 4, 4, 2, 1, 0]])
def test_terms_are_those_of_gathered_keys(monkeypatch, least, ids):
    monkeypatch.setattr(log_mean_exp, '_LEAST_ENTRIES', least)
    ids, slopes = torch.tensor(ids), torch.linspace(-1, 2, 14).double()
    results = []
    for ring in (None, KeyRing([7])):
        leaves = [rows(0), rows(1), rows(2)[:, 0].exp()]
        leaves = [x.requires_grad_() for x in leaves]
        view1, view2, tau = leaves
        both = two_view_terms(view1, view2, tau, ids, ring=ring)
        sides = two_modality_terms(view1, view2, tau, 2 * tau, ids, ring=ring)
        values = [both, *sides]
        total = sum((slopes[: len(x.count)] * x.log_mean)[x.count > 0].sum() for x in values)
        results.append(
            [*(y for x in values for y in vars(x).values()), *torch.autograd.grad(total, leaves)]
        )
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_gradcheck():
    ids = torch.tensor([0, 1, 2, 1])
    leaves = [rows(i, 3)[:4] for i in range(2)]
    leaves = [x.requires_grad_() for x in (*leaves, rows(2)[:4, 0].exp())]

    def value(anchors, keys, tau):
        ring = KeyRing([4])
        return negative_terms(anchors, anchors + 1, keys, tau, ids, ids, ring=ring).log_mean

    assert torch.autograd.gradcheck(value, leaves)


BENCHMARKS = Path(__file__).parents[2] / 'tools' / 'benchmarks'


def peak_on_rank(rank, gather):
    """Bytes of a loss beyond its embeddings."""
    sys.path.insert(0, str(BENCHMARKS))
    from memory_peak import peak_extra_memory

    loss = CLIPLoss(gather=gather)

    def views():
        return [torch.randn(64, 4096).requires_grad_() for _ in range(2)]

    def step(*views):
        loss(*views).backward()

    return [torch.tensor(peak_extra_memory(step, views))]


@pytest.mark.slow
@pytest.mark.processes
def test_memory_does_not_grow_with_the_ranks():
    peak = {
        (gather, world): max(int(x) for (x,) in run_on_ranks(peak_on_rank, world, gather))
        for gather in ('all', 'ring')
        for world in (3, 4)
    }
    assert peak['all', 4] > 1.2 * peak['all', 3]
    assert peak['ring', 4] < 1.05 * peak['ring', 3]
    assert peak['ring', 4] < peak['all', 4] / 2


def test_second_derivatives_are_refused():
    x = rows(0).requires_grad_()
    value = sigmoid_losses(x, rows(1), 1.0, 0.0).square().sum()
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivative'):
        gradient.sum().backward()


def test_settings_that_do_nothing_are_refused():
    with pytest.raises(ValueError, match="gather='ring' has no effect"):
        CLIPLoss(gather='ring', scope='local')
    with pytest.raises(ValueError, match="gather='tree' is unknown"):
        CLIPLoss(gather='tree')
    with pytest.raises(ValueError, match='is not for CyCLIPLoss'):
        CyCLIPLoss(gather='ring')
