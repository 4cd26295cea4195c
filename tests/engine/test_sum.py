"""SUM against its recursion."""

import pytest
import torch
from torch import nn

from mmrank.engine.optimizers import SUM


def _gradient(theta):
    """Gradient of a fixed ill-conditioned, slightly non-quadratic function."""
    scale = torch.tensor([1.0, 5.0, 0.3], dtype=torch.float64)
    return scale * theta + 0.1 * theta.sin()


def _start():
    return nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))


@pytest.mark.parametrize('s', [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize('weight_decay', [0.0, 0.1])
def test_equals_algorithm_1(s, weight_decay):
    lr, beta = 0.05, 0.9
    parameter = _start()
    optimizer = SUM([parameter], lr, beta, s, weight_decay)
    theta = _start().detach()
    gs = theta.clone()
    for _ in range(25):
        parameter.grad = _gradient(parameter.detach())
        optimizer.step()
        grad = _gradient(theta) + weight_decay * theta
        g, gs_new = theta - lr * grad, theta - s * lr * grad
        theta, gs = g + beta * (gs_new - gs), gs_new
        torch.testing.assert_close(parameter.detach(), theta, rtol=1e-12, atol=1e-13)


def test_groups_closure_and_missing_gradients():
    a, b = _start(), _start()
    optimizer = SUM([{'params': [a], 'lr': 0.5, 's': 1.0}, {'params': [b]}], lr=0.1)
    a.grad = torch.ones_like(a)

    def closure():
        assert torch.is_grad_enabled()
        return 7

    before = b.detach().clone()
    assert optimizer.step(closure) == 7
    torch.testing.assert_close(a.detach(), _start().detach() - 0.5 - 0.9 * 0.5)
    assert torch.equal(b, before)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        ({'lr': -1.0}, 'lr must be'),
        ({'momentum': 1.0}, 'momentum must be'),
        ({'s': -0.1}, 's must be'),
        ({'weight_decay': -1.0}, 'weight_decay must be'),
    ],
)
def test_bad_parameters_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        SUM([_start()], **kwargs)
