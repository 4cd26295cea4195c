"""Embeddings in chunks: the gradient of the batch, passes that agree."""

import copy

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import spectral_norm

from mmrank.functional import grad_cache
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
    net, x = network(middle), images()
    whole, cached = net(x), grad_cache(net, x, chunk)
    torch.testing.assert_close(cached, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        gradients(loss(cached), net), gradients(loss(whole), net), rtol=1e-12, atol=1e-12
    )


def test_gradient_of_the_inputs():
    net = network()
    x, y = (images().requires_grad_() for _ in range(2))
    loss(grad_cache(net, x, 3)).backward()
    loss(net(y)).backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-12, atol=1e-12)


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
    table = nn.Embedding(300, 4).double()

    def encode(texts):
        return torch.stack([table(torch.tensor(list(x.encode()))).mean(0) for x in texts])

    texts = ['a cat', 'two dogs', 'sea', 'a red car', 'x']
    for chunk in (2, 5):
        got = grad_cache(encode, texts, chunk, [table])
        torch.testing.assert_close(
            gradients(loss(got), table),
            gradients(loss(encode(texts)), table),
            rtol=1e-12,
            atol=1e-12,
        )


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
