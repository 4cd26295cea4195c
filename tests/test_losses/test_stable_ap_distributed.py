"""What test_registered_losses_distributed.py does not ask of several processes."""

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import StableAPLoss

pytestmark = pytest.mark.processes

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
        model.loss.imbalance.mean,
    ]


def _train_part(rank, sizes, kwargs, empty):
    features, target = _data(empty, sizes)
    begin = sum(sizes[:rank])
    part = slice(begin, begin + sizes[rank])
    model = DistributedDataParallel(_Model(kwargs))
    return _train(model, features[part], target[part])


def test_a_rank_without_positives():
    sizes, kwargs = (31, 17), dict(tau='auto', mode='per_class')
    results = run_on_ranks(_train_part, 2, sizes, kwargs, True)
    expected = _train(_Model(kwargs), *_data(True, sizes))
    for got in results:
        for a, b in zip(got, expected):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


class _Detector(nn.Module):
    def __init__(self):
        super().__init__()
        from small_heads import STABLE_AP, build_head

        self.head = build_head('RetinaHead', STABLE_AP).double()

    def forward(self, images):
        """Losses of the chosen images of the shared batch."""
        from small_heads import make_inputs

        features, truths, metas = make_inputs()
        outs = self.head([x[images].double() for x in features])
        losses = self.head.loss_by_feat(
            *outs, [truths[i] for i in images], [metas[i] for i in images]
        )
        return losses['loss_cls'], sum(losses['loss_bbox'])


def _detector_gradients(model, images):
    loss_cls, loss_bbox = model(images)
    (loss_cls + loss_bbox).backward()
    head = getattr(model, 'module', model).head
    grads = [p.grad for p in head.parameters()]
    return [loss_cls, head.loss_cls.loss.mean_positive.mean, *grads]


def _detector_part(rank):
    return _detector_gradients(DistributedDataParallel(_Detector()), [rank])


def test_a_detector_equals_one_process():
    """Two images with 2 and 1 boxes, one on each rank; boxes included."""
    pytest.importorskip('mmdet')
    expected = _detector_gradients(_Detector(), [0, 1])
    for got in run_on_ranks(_detector_part, 2):
        for a, b in zip(got, expected):
            torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-9)


def _rank_locally(rank, sizes):
    features, target = _data(False, sizes)
    begin = sum(sizes[:rank])
    part = slice(begin, begin + sizes[rank])
    model = _Model(dict(scope='local', t=0.0, rho='batch'))
    loss = model(features[part], target[part])
    auto = _Model(dict(scope='local', t=0.0))
    auto(features[part], target[part])
    return [loss, model.loss.mean_positive.mean, auto.loss.imbalance.mean]


def test_local_scope_ranks_per_process_but_shares_the_state():
    """With t = 0 the loss does not depend on the mean positive score.

    The average of the risk is that of the ranks, each of which has a list.
    """
    sizes = (40, 23)
    features, target = _data(False, sizes)
    whole = _Model(dict(t=0.0))
    whole(features, target)
    risks = []
    results = run_on_ranks(_rank_locally, 2, sizes)
    for rank, (loss, mean, _) in enumerate(results):
        begin = sum(sizes[:rank])
        part = slice(begin, begin + sizes[rank])
        alone = _Model(dict(t=0.0, rho='batch'))
        value = alone(features[part], target[part])
        torch.testing.assert_close(loss, value.detach())
        torch.testing.assert_close(mean, whole.loss.mean_positive.mean)
        risks.append(alone.loss.diagnostics['risk'])
    for _, _, average in results:
        torch.testing.assert_close(average.double(), torch.stack(risks).mean().reshape(1))
