"""Each rival on two or three gloo processes equals one process."""

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.registry import MODELS

pytestmark = pytest.mark.processes

CLASSES = 3
LOSSES = [
    dict(type='mmrank.APLoss'),
    dict(type='mmrank.ALRPLoss', balance_period=2),
    dict(type='mmrank.RankSortLoss', mode='per_class'),
    dict(type='mmrank.DRLoss', mode='per_class'),
]


def _data(sizes):
    """The last rank has no positive at all."""
    g = torch.Generator().manual_seed(5)
    n = sum(sizes)
    features = torch.randn(n, 8, generator=g, dtype=torch.float64)
    target = torch.randint(0, 4 * CLASSES, (n,), generator=g)
    target = target.clamp(max=CLASSES)
    target[-sizes[-1] :] = CLASSES
    return features, target


class _Model(nn.Module):
    """Scores and, for each row, a number that stands for its box."""

    def __init__(self, config):
        super().__init__()
        torch.manual_seed(0)
        self.scores = nn.Linear(8, CLASSES).double()
        self.boxes = nn.Linear(8, 1).double()
        self.loss = MODELS.build(dict(config, num_classes=CLASSES))

    def forward(self, features, target):
        boxes = self.boxes(features).sigmoid()[target < CLASSES, 0]
        if self.loss.box_input == 'quality':
            given = dict(quality=boxes.detach())
        elif self.loss.box_input == 'loss':
            given = dict(box_loss=boxes)
        else:
            given = {}
        losses = self.loss(self.scores(features), target, **given)
        if isinstance(losses, dict):
            losses = sum(losses.values())
        return losses + 0 * self.boxes.weight.sum() + 0 * self.boxes.bias.sum()


def _train(model, features, target, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(features, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    inner = getattr(model, 'module', model)
    state = inner.loss.state_dict()
    return [
        torch.tensor(losses),
        *(p.detach() for p in inner.parameters()),
        *(p.grad for p in inner.parameters()),
        *(state[name].double() for name in sorted(state)),
    ]


def _train_part(rank, sizes, configs):
    features, target = _data(sizes)
    begin = sum(sizes[:rank])
    part = slice(begin, begin + sizes[rank])
    return [
        tensor
        for config in configs
        for tensor in _train(
            DistributedDataParallel(_Model(config)),
            features[part],
            target[part],
        )
    ]


@pytest.mark.parametrize(
    'sizes', [(70, 9), pytest.param((31, 17, 5), marks=pytest.mark.slow)]
)
def test_equals_one_process(sizes):
    results = run_on_ranks(_train_part, len(sizes), sizes, LOSSES)
    expected = [
        tensor
        for config in LOSSES
        for tensor in _train(_Model(config), *_data(sizes))
    ]
    for got in results:
        assert len(got) == len(expected)
        for a, b in zip(got, expected):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
