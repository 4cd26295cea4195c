"""Gradient caching, and the global contrastive loss by loops."""

import copy
import math
from collections import UserDict

import pytest
import torch
from gloo_processes import run_on_ranks
from subjects import assert_same_gradients
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import spectral_norm

from mmrank.functional import grad_cache, unit_rows
from mmrank.losses import FlatCLRLoss, InfoNCELoss, SogCLRLoss
from mmrank.losses.contrastive import terms as log_mean_exp
from mmrank.losses.contrastive.base import ContrastedBatch
from mmrank.losses.contrastive.terms import Samples, negative_terms
from timing import peak_extra_memory


def images(n=10):
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, 6, 6, generator=g, dtype=torch.float64)


def network(*middle):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), *middle, nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(8 * 16, 5)).double()


def loss(rows):
    """Every row sees every other one."""
    return (rows @ rows.t()).logsumexp(1).square().sum()


def gradients(value, module):
    return torch.autograd.grad(value, list(module.parameters()))


@pytest.mark.parametrize('chunk', [1, 3, 4, 9, 10, 99])
@pytest.mark.parametrize('middle', [nn.GroupNorm(2, 8), nn.Tanh()])
def test_value_and_gradient_are_those_of_the_batch(chunk, middle):
    net, x = network(middle), images().requires_grad_()
    leaves = [x, *net.parameters()]
    results = []
    for rows in (net(x), grad_cache(net, x, chunk)):
        results.append([rows, *torch.autograd.grad(loss(rows), leaves)])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_activations_are_those_of_one_chunk():
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh())] * 10)

    def peak(rows, chunk):
        return peak_extra_memory(
            lambda x: grad_cache(net, x, chunk).sum().backward(), lambda: (torch.zeros(rows, 64),)
        )

    row = 4 * 64
    whole, small, large = peak(256, 256), peak(64, 16), peak(256, 16)
    assert whole > 10 * 256 * row
    # Embeddings, and their gradient.
    assert large - small < 3 * 192 * row
    assert large < whole / 2


@pytest.mark.parametrize('state', ['dropout', 'batch norm', 'spectral norm'])
def test_second_pass_repeats_the_first(state):
    middle = {
        'dropout': nn.Dropout(0.4),
        'batch norm': nn.BatchNorm2d(8, momentum=None),
        'spectral norm': spectral_norm(nn.Conv2d(8, 8, 1)),
    }[state]
    net = network(middle)
    other, x = copy.deepcopy(net), images()
    torch.manual_seed(1)
    plain = torch.cat([other(part) for part in x.split(4)])
    after = torch.get_rng_state()
    expected = gradients(loss(plain), other)
    torch.manual_seed(1)
    cached = grad_cache(net, x, 4)
    assert torch.equal(torch.get_rng_state(), after)
    got = gradients(loss(cached), net)
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(cached, plain, rtol=0, atol=0)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    # Running statistics took in each chunk once.
    torch.testing.assert_close(list(net.buffers()), list(other.buffers()), rtol=0, atol=0)


def test_rows_that_are_no_tensor():
    """Texts, and columns by name or in order, in chunks of four."""
    table = nn.Embedding(300, 4).double()
    sizes = []

    def encode(texts):
        sizes.append(len(texts))
        return torch.stack([table(torch.tensor(list(x.encode()))).mean(0) for x in texts])

    def embed(batch):
        ids, mask = batch.values() if hasattr(batch, 'values') else batch
        sizes.append(len(ids))
        return (table(ids) * mask[..., None]).mean(1)

    columns = dict(ids=torch.arange(60).view(10, 6), mask=torch.ones(10, 6))
    texts = ['a cat', 'two dogs', 'sea', 'a red car', 'x']
    for function, rows in (
        (encode, texts),
        (embed, columns),
        (embed, UserDict(columns)),
        (embed, (*columns.values(),)),
    ):
        expected = gradients(loss(function(rows)), table)
        sizes.clear()
        got = grad_cache(function, rows, 4, [table])
        assert max(sizes) == 4
        torch.testing.assert_close(gradients(loss(got), table), expected, rtol=1e-12, atol=1e-12)


def test_no_rows_and_no_gradient():
    net = network()
    assert grad_cache(net, images(0), 4).shape == (0, 5)
    with torch.no_grad():
        assert not grad_cache(net, images(), 4).requires_grad


class Chunked(nn.Module):
    """Embeds two rows at a time."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, rows):
        return grad_cache(self.net, rows, 2)


def on_rank(rank):
    model, sent = Chunked(), []
    ddp = DistributedDataParallel(model)

    def count(state, bucket):
        sent.append(len(bucket.gradients()))
        return default_hooks.allreduce_hook(None, bucket)

    ddp.register_comm_hook(None, count)
    loss(ddp(images()[:4] if rank == 0 else images()[4:])).backward()
    return sum(sent), [x.grad for x in model.parameters()]


@pytest.mark.processes
def test_processes_send_each_gradient_once():
    net = network()
    whole = (loss(net(images()[:4])) + loss(net(images()[4:]))) / 2
    expected = gradients(whole, net)
    for sent, got in run_on_ranks(on_rank, 2):
        assert sent == len(expected)
        torch.testing.assert_close(got, [*expected], rtol=1e-12, atol=1e-12)


def views(n, dim=5, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return [
        normalize(torch.randn(n, dim, generator=g, dtype=torch.float64)).to(dtype) for _ in range(2)
    ]


@pytest.mark.parametrize('kind', [InfoNCELoss, FlatCLRLoss, lambda: SogCLRLoss(3)])
def test_gradient_without_negatives_is_zero(kind):
    pair = [x.requires_grad_() for x in views(3)]
    value = kind()(*pair, torch.zeros(3, dtype=torch.long))
    assert value == 0
    assert not any(x.any() for x in torch.autograd.grad(value, pair))


def test_unit_rows():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    for size in (1, 1e-30, 1e30):
        rows = unit_rows(x * size)
        torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
        assert torch.autograd.grad(rows.sum(), x)[0].isfinite().all()
    assert unit_rows(torch.zeros(0, 3)).shape == (0, 3)
    assert unit_rows(torch.ones(2, 2).bfloat16()).dtype == torch.float32
    x = views(3)[0].mul(3).requires_grad_()
    assert torch.autograd.gradcheck(unit_rows, x)
    assert torch.autograd.gradgradcheck(unit_rows, x)


def by_definition(anchors, positives, keys, tau, anchor_ids, key_ids):
    """Terms of anchors by the plain definition, without blocks."""
    h = anchors @ keys.t() - (anchors * positives).sum(1, keepdim=True)
    other = anchor_ids[:, None] != key_ids
    scaled = (h / tau[:, None]).masked_fill(~other, -math.inf)
    count = other.sum(1)
    mean_h = (scaled.softmax(1) * h).sum(1)
    return [scaled.logsumexp(1) - count.log(), mean_h.detach(), count]


# Similarities are kept for backward, or computed once more; in one strip, or in several, the last
# of them shorter.
@pytest.mark.parametrize('dim', [2, 16])
@pytest.mark.parametrize('entries', [1, 30, 10**6])
@pytest.mark.parametrize('ids', [range(11), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]], ids=len)
@pytest.mark.parametrize('kept', [0, 10**6])
def test_both_directions_equal_each_alone(monkeypatch, dim, entries, ids, kept):
    monkeypatch.setattr(log_mean_exp, 'BLOCK_ENTRIES', entries)
    monkeypatch.setattr(log_mean_exp, '_KEPT_ENTRIES', kept)
    ids = torch.tensor([*ids])
    view1, view2 = views(11, dim)
    tau1 = torch.linspace(0.05, 0.9, 11, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (view1, view2, tau1, tau1.flip(0) + 0.1)]
    *_, tau2 = inputs
    rows, swapped = torch.cat([view1, view2]), torch.cat([view2, view1])
    tau, row_ids = torch.cat([tau1, tau2]), ids.repeat(2)
    samples = Samples([view1, view2], ids)
    both = samples.views_as_samples()
    found = [
        negative_terms(samples.of_view(0), view2, samples.of_view(1), torch.stack([tau1, tau2])),
        negative_terms(both, swapped, both, tau),
    ]
    expected = [
        by_definition(view1, view2, view2, tau1, ids, ids),
        by_definition(view2, view1, view1, tau2, ids, ids),
        by_definition(rows, swapped, rows, tau, row_ids, row_ids),
    ]
    log_mean, mean_h, count = (torch.cat(x) for x in zip(*expected))
    torch.testing.assert_close(torch.cat([x.mean_h.flatten() for x in found]), mean_h)
    assert torch.equal(torch.cat([x.count.flatten() for x in found]), count)
    log_means = torch.cat([x.log_mean.flatten() for x in found])
    assert_same_gradients(log_means, log_mean, inputs)


def test_memory_is_at_most_six_times_one_view():
    def both(view1, view2):
        terms = ContrastedBatch.of_views([view1, view2]).terms(0.05, bimodal=True)
        terms.log_mean.sum().backward()

    # Smaller ones take 4 MiB and more, whatever their size.
    n, dim = 2048, 256
    made = [x.requires_grad_() for x in views(n, dim, dtype=torch.float)]
    peak = peak_extra_memory(both, lambda: [x.detach().requires_grad_() for x in made])
    assert peak < 6.2 * n * dim * 4
