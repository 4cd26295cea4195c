"""Gradients of gradients of functions; test_registered_losses.py has all losses."""

import pytest
import torch
from score_lists import surrogate_mean
from torch import nn

from mmrank.losses.ranking.dr_loss import softmax_mean

REFUSED = 'no second derivative.*create_graph=True'


@pytest.mark.parametrize(
    'function',
    [
        # Linear in the function: the incoming gradient is a constant.
        lambda x: surrogate_mean(x[0], x[1], 1.0).sum(),
        lambda x: softmax_mean(x, 0.5).sum(),
    ],
)
def test_functions_refuse_a_gradient_penalty(function):
    scores = torch.tensor([[0.1, 0.7], [0.4, -0.2]], requires_grad=True)
    value = function(scores)
    (grad,) = torch.autograd.grad(value, scores, create_graph=True)
    assert grad.any()
    with pytest.raises(RuntimeError, match=REFUSED):
        (value + grad.square().sum()).backward()


def test_a_penalty_beside_a_refused_loss_is_allowed():
    """Only the loss itself is refused, not what shares its scores."""
    layer = nn.Linear(2, 1).double()
    inputs = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    scores = layer(inputs)[:, 0]
    loss = surrogate_mean(scores[:2], scores[2:], 1.0).mean()
    (slope,) = torch.autograd.grad(scores.sigmoid().sum(), inputs, create_graph=True)
    (loss + slope.square().sum()).backward()
    assert layer.weight.grad.isfinite().all()
