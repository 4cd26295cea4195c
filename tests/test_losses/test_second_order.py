"""Gradients of gradients are right or refused, for every registered loss.

A gradient penalty or a Hessian takes them, and shows nothing of a wrong one.
"""

import copy
import re
from dataclasses import replace

import pytest
import torch
from registered_losses import cases
from torch import nn

from mmrank.functional import pairwise_surrogate_mean
from mmrank.losses.ranking.dr_loss import softmax_mean

#: Losses of another package, with its own message.
FOREIGN = {'PMLLoss': 'derivative for .* is not implemented'}
REFUSED = 'no second derivative.*create_graph=True'


def derived_along(gradients, leaves, directions):
    """Product of the second derivatives with a direction, by autograd."""
    slope = sum((g * v).sum() for g, v in zip(gradients, directions))
    if not slope.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(slope, leaves, allow_unused=True)
    return [torch.zeros_like(x) if y is None else y for x, y in zip(leaves, found)]


@pytest.mark.parametrize('case', cases(), ids=str)
def test_second_derivatives_are_right_or_refused(case):
    batch, loss = case.batch(6, 1), case.build()
    g = torch.Generator().manual_seed(0)
    directions = [torch.randn(x.shape, generator=g, dtype=x.dtype) for x in batch.leaves]

    def gradients(step=0.0, create_graph=False):
        leaves = [
            (x + step * v).detach().requires_grad_() for x, v in zip(batch.leaves, directions)
        ]
        # A copy: the state of the loss is the same in each call.
        value = replace(batch, leaves=tuple(leaves)).of(copy.deepcopy(loss))
        found = torch.autograd.grad(value, leaves, create_graph=create_graph)
        return leaves, found

    plain = gradients()[1]
    leaves, kept = gradients(create_graph=True)
    # Who only looks at the gradient is not refused, and gets the same.
    assert all(map(torch.equal, plain, kept))
    try:
        found = derived_along(kept, leaves, directions)
    except RuntimeError as error:
        message = FOREIGN.get(case.name, REFUSED)
        if not re.search(message, str(error)):
            raise
        return
    step = 1e-6
    up, down = gradients(step)[1], gradients(-step)[1]
    expected = [(a - b) / (2 * step) for a, b in zip(up, down)]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    'function',
    [
        # Linear in the function: the incoming gradient is a constant.
        lambda x: pairwise_surrogate_mean(x[0], x[1], 1.0).sum(),
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
    loss = pairwise_surrogate_mean(scores[:2], scores[2:], 1.0).mean()
    (slope,) = torch.autograd.grad(scores.sigmoid().sum(), inputs, create_graph=True)
    (loss + slope.square().sum()).backward()
    assert layer.weight.grad.isfinite().all()
