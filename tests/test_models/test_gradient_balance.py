"""``balance_gradients``: the class gradient is kept at a share of the box gradient."""

import copy

import pytest
import torch
from gloo_processes import run_on_ranks
from query_heads import LAYERS, QUERIES, WIDTH, build_query_head, query_batch
from small_box_heads import box_head_losses, build_box_head
from small_heads import HEADS, OMIT, build_head, make_inputs, summed
from torch import nn

from mmrank.losses import StableAPLoss
from mmrank.state import GradientBalance

TARGET = 0.5
GRADED = dict(type='mmrank.GradedAPLoss')


def _norm(loss, features):
    """Float64 norm of the gradient."""
    found = torch.autograd.grad(loss, features, retain_graph=True, allow_unused=True)
    return torch.cat([x.double().flatten() for x in found if x is not None]).norm()


def _parts(features, slopes):
    """Two scalar losses of features, not linear in them."""
    return [(slope * features.tanh()).sum() for slope in slopes]


def _slopes(seed, rows=6):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, rows, 5, generator=g, dtype=torch.float64)


def test_the_scaled_ratio_is_the_target_on_average():
    """In float64, the mean of the log ratios by hand."""
    balance = GradientBalance(TARGET)
    logs = []
    for step in range(30):
        features = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
        cls, box = _parts(balance.watch(features), _slopes(step))
        factor = balance.factor(cls, box)
        logs.append((_norm(cls, [features]) / _norm(box, [features])).log())
        expected = logs[0]
        for number, value in enumerate(logs[1:], 2):
            expected = expected + max(1 / number, 0.1) * (value - expected)
        torch.testing.assert_close(factor.double(), TARGET / expected.exp(), rtol=1e-6, atol=0)
        if step == 0:
            scaled = _norm(factor * cls, [features]) / _norm(box, [features])
            assert scaled.item() == pytest.approx(TARGET, rel=1e-6)


@pytest.mark.parametrize('constants', [(1000.0, 1.0), (1.0, 1e-6)])
def test_a_constant_weight_of_a_part_changes_nothing(constants):
    features = torch.randn(6, 5, requires_grad=True)
    products = []
    for weights in ((1.0, 1.0), constants):
        balance = GradientBalance(TARGET)
        for step in range(3):
            parts = _parts(balance.watch(features), _slopes(step).float())
            cls, box = (w * x for w, x in zip(weights, parts))
            # The class part over the weight of the boxes is what the optimiser sees.
            product = balance.factor(cls, box) * cls / weights[1]
        products.append(product)
    torch.testing.assert_close(products[0], products[1], rtol=1e-4, atol=0)


def test_every_batch_is_measured_at_first_and_then_every_twentieth():
    balance = GradientBalance(TARGET)
    features = torch.randn(6, 5, requires_grad=True)
    for step in range(100):
        balance.factor(*_parts(balance.watch(features), _slopes(step).float()))
    later = (100 - balance.FIRST) // balance.PERIOD
    assert balance.num_updates == balance.FIRST + later
    assert balance.steps == 100
    balance.eval()
    before = copy.deepcopy(balance.state_dict())
    balance.factor(*_parts(balance.watch(features), _slopes(0).float()))
    balance.train()
    with torch.no_grad():
        balance.factor(*_parts(balance.watch(features), _slopes(0).float()))
    assert all(torch.equal(x, before[key]) for key, x in balance.state_dict().items())


def test_a_resumed_balance_goes_on_to_the_bit():
    features = torch.randn(6, 5, requires_grad=True)

    def run(balance, steps):
        return [balance.factor(*_parts(balance.watch(features), _slopes(i).float())) for i in steps]

    whole = GradientBalance(TARGET)
    expected = run(whole, range(90))
    first = GradientBalance(TARGET)
    run(first, range(55))
    second = GradientBalance(TARGET)
    run(second, range(3))
    second.load_state_dict(first.state_dict())
    assert torch.equal(torch.stack(run(second, range(55, 90))), torch.stack(expected[55:]))


def test_a_batch_without_objects_does_not_count():
    balance = GradientBalance(TARGET)
    features = torch.randn(6, 5, requires_grad=True)
    assert balance.factor(balance.watch(features).sum(), features.sum() * 0) == 1
    assert balance.factor(balance.watch(features).sum() * torch.inf, features.sum()) == 1
    assert balance.num_updates == 0
    cls, box = _parts(balance.watch(features), _slopes(0).float())
    factor = balance.factor(cls, box)
    assert balance.factor(balance.watch(features).sum() * 0, features.sum()) == factor


def _joined(rank, size):
    """Each rank has its share of the rows, and DDP the mean of the losses."""
    balance = GradientBalance(TARGET)
    rows = slice(None)
    if size > 1:
        rows = slice(0, 1) if rank == 0 else slice(1, None)
    features = torch.linspace(-1, 1, 30).reshape(6, 5)[rows].double().requires_grad_()
    found = []
    for step in range(3):
        cls, box = _parts(balance.watch(features), size * _slopes(step)[:, rows])
        found.append(balance.factor(cls, box))
    return [torch.stack(found)]


@pytest.mark.processes
def test_ranks_equal_one_process():
    (expected,) = _joined(0, 1)
    for (found,) in run_on_ranks(_joined, 2, 2):
        torch.testing.assert_close(found, expected)


def _dense_losses(head, features, boxes=True):
    _, truths, metas = make_inputs(boxes)
    return head.loss_by_feat(*head(tuple(features)), truths, metas)


def _query_losses(head, hidden):
    references = [torch.full((2, QUERIES, 4), 0.3)] * LAYERS
    truths, metas = query_batch()
    return head.loss_by_feat(*head(hidden, references), None, None, truths, metas)


def _box_losses(head, features):
    return box_head_losses(head, *head(features))


def _query_head(**kwargs):
    head = build_query_head('DeformableDETRHead', GRADED, **kwargs)
    for branch in head.reg_branches:
        # It begins at 0, without a gradient in what it shares.
        nn.init.constant_(branch[-1].weight, 0.01)
    return head


def _proposal_head(**kwargs):
    retina = {**HEADS['RetinaHead'], 'num_classes': 1, 'stacked_convs': OMIT}
    return build_head('RPNHead', GRADED, heads={'RPNHead': retina}, **kwargs)


def _proposal_losses(head, features):
    _, truths, metas = make_inputs()
    for truth in truths:
        truth.labels.zero_()
    return head.loss_by_feat(*head(tuple(features)), truths, metas)


def _box_head(**kwargs):
    return build_box_head(GRADED, reg_class_agnostic=True, **kwargs)


def _hosts():
    torch.manual_seed(0)
    dense = [x.requires_grad_() for x in make_inputs()[0]]
    hidden = torch.randn(LAYERS, 2, QUERIES, WIDTH, requires_grad=True)
    rois = torch.randn(4, 4, 1, 1, requires_grad=True)
    return {
        'dense': (lambda **k: build_head('ATSSHead', GRADED, **k), dense, _dense_losses),
        'proposals': (_proposal_head, dense, _proposal_losses),
        'queries': (_query_head, hidden, _query_losses),
        'boxes': (_box_head, rois, _box_losses),
    }


@pytest.mark.parametrize('host', ['dense', 'proposals', 'queries', 'boxes'])
def test_heads_scale_their_class_part(host):
    build, features, losses_of = _hosts()[host]
    leaves = features if isinstance(features, list) else [features]
    plain = losses_of(build(), features)
    head = build(balance_gradients=TARGET)
    losses = losses_of(head, features)
    cls = sum(summed(v) for k, v in losses.items() if k.endswith('cls'))
    boxes = [v for k, v in losses.items() if k.endswith(('bbox', 'loss_iou'))]
    box = sum(summed(v) for v in boxes)
    assert (_norm(cls, leaves) / _norm(box, leaves)).item() == pytest.approx(TARGET, rel=1e-3)
    assert not losses.get('class_factor', torch.zeros(())).requires_grad
    # The boxes keep their loss, and without the option nothing is scaled.
    assert {*plain} == {*losses} - {'class_factor'}
    for key in plain:
        if not key.endswith('cls'):
            assert torch.equal(summed(losses[key]), summed(plain[key])), key
    saved = {k for k in head.state_dict() if 'gradient_balance' in k}
    assert {k.rpartition('.')[2] for k in saved} == {'mean', 'num_updates', 'steps'}
    assert not any('gradient_balance' in k for k in build().state_dict())


def test_frozen_features_are_measured_as_well():
    build, features, losses_of = _hosts()['dense']
    head = build(balance_gradients=TARGET)
    losses_of(head, [x.detach() for x in features])
    free = build(balance_gradients=TARGET)
    losses_of(free, features)
    assert head.gradient_balance.num_updates == 1
    assert torch.equal(head.gradient_balance.mean, free.gradient_balance.mean)
    before = head.gradient_balance.mean.clone()
    losses = losses_of(head, features, boxes=False)
    assert all(summed(value).isfinite() for value in losses.values())
    assert torch.equal(head.gradient_balance.mean, before)


@pytest.mark.parametrize(
    'how', ['checkpoint', 'reentrant', pytest.param('compiled', marks=pytest.mark.slow)]
)
def test_checkpointed_features_and_a_compiled_head(how):
    """Activation checkpointing before the head; the whole step compiled."""

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.trunk = nn.Linear(5, 5)
            self.heads = nn.ModuleList([nn.Linear(5, 3), nn.Linear(5, 4)])
            self.loss = StableAPLoss()
            self.balance = GradientBalance(TARGET)

        def forward(self, x, labels, reentrant=None):
            features = (
                self.trunk(x)
                if reentrant is None
                else torch.utils.checkpoint.checkpoint(self.trunk, x, use_reentrant=reentrant)
            )
            features = self.balance.watch(features)
            cls = self.loss(self.heads[0](features), labels)
            box = self.heads[1](features).square().mean()
            losses = self.balance.scaled(dict(cls=cls, box=box), ['cls'], ['box'])
            return losses['cls'] + losses['box']

    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    labels = torch.arange(20) % 4
    results = []
    for name in ('plain', how):
        step = Step()
        options = dict(reentrant=name == 'reentrant') if name in ('checkpoint', 'reentrant') else {}
        call = torch.compile(step, backend='aot_eager') if name == 'compiled' else step
        for _ in range(2):
            step.zero_grad()
            call(x, labels, **options).backward()
        results.append([p.grad.clone() for p in step.parameters()])
        assert step.balance.num_updates == 2
    torch.testing.assert_close(*results)
