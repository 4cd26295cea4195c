"""Two or three gloo processes give what one process gives."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.models import StableAPLoss

CLASSES = 3


def _data(no_positives_on_last_rank: bool, sizes):
    g = torch.Generator().manual_seed(5)
    n = sum(sizes)
    features = torch.randn(n, 8, generator=g, dtype=torch.float64)
    target = torch.randint(0, 4 * CLASSES, (n,), generator=g)
    target = target.clamp(max=CLASSES)
    if no_positives_on_last_rank:
        target[-sizes[-1] :] = CLASSES
    return features, target


class _Model(nn.Module):
    def __init__(self, kwargs):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, CLASSES).double()
        self.loss = StableAPLoss(num_classes=CLASSES, **kwargs)

    def forward(self, features, target):
        return self.loss(self.linear(features), target)


def _train(model, features, target, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(features, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model = getattr(model, 'module', model)
    state = model.loss.mean_positive
    return [
        torch.tensor(losses),
        model.linear.weight.detach(),
        model.linear.weight.grad,
        model.linear.bias.grad,
        state.mean,
        state.num_updates,
    ]


def _worker(rank, sizes, port, kwargs, empty, queue):
    torch.set_num_threads(1)
    dist.init_process_group(
        'gloo',
        init_method=f'tcp://127.0.0.1:{port}',
        rank=rank,
        world_size=len(sizes),
    )
    features, target = _data(empty, sizes)
    begin = sum(sizes[:rank])
    part = slice(begin, begin + sizes[rank])
    model = DistributedDataParallel(_Model(kwargs))
    result = _train(model, features[part], target[part])
    queue.put((rank, [x.numpy() for x in result]))
    dist.barrier()
    dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


@pytest.mark.parametrize(
    ('sizes', 'kwargs', 'empty'),
    [
        ((40, 40), dict(rho=1.0), False),
        ((50, 9), dict(rho='batch'), True),
        ((31, 17), dict(mode='per_class'), True),
        ((3000, 1200, 7), dict(rho=1.0, mode='per_class'), False),
    ],
)
def test_equals_one_process(sizes, kwargs, empty):
    context = mp.get_context('spawn')
    queue = context.Queue()
    port = _free_port()
    workers = [
        context.Process(
            target=_worker, args=(rank, sizes, port, kwargs, empty, queue)
        )
        for rank in range(len(sizes))
    ]
    for worker in workers:
        worker.start()
    results = dict(queue.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    expected = _train(_Model(kwargs), *_data(empty, sizes))
    for got in results.values():
        for a, b in zip(got, expected):
            torch.testing.assert_close(
                torch.as_tensor(a), b, rtol=1e-6, atol=1e-8
            )
