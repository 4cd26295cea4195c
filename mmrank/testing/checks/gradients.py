"""Checks of the value and of its first and second derivatives."""

import copy

import torch
from torch import Tensor

from mmrank.testing.check import CheckFailedError, check, require, require_finite, require_same
from mmrank.testing.subject import Subject


@check(refusals=())
def _value(subject: Subject) -> None:
    """One finite number, with a finite gradient that is not zero everywhere.

    All other checks presuppose it. If it fails by an error, look whether the loss is called as it
    wants to be.
    """
    value, gradients = subject.batch().gradients(subject.build())
    require(value.numel() == 1, f'the value has the shape {tuple(value.shape)}, not ()')
    require_finite(value, gradients)
    require(any(x.any() for x in gradients), 'every gradient is zero')


@check()
def _inputs_untouched(subject: Subject) -> None:
    """A loss does not write into its inputs.

    Labels that it changes in place are wrong for the metric, and for the second loss, that read
    them afterwards; nothing shows it.
    """
    batch = subject.batch()
    before = [x.clone() for x in (*batch.leaves, *batch.fixed)]
    leaves = [x.clone().requires_grad_() for x in batch.leaves]
    batch.with_leaves(leaves).of(subject.build()).backward()
    for x, y in zip((*leaves, *batch.fixed), before):
        require(torch.equal(x, y), 'an input has other numbers after the call')


@check()
def _same_twice(subject: Subject) -> None:
    """Two losses that are built alike, with the same seed, say the same of the same batch.

    A difference comes from a state that instances share, or from numbers that no seed reaches.
    """
    batch = subject.batch()
    expected = batch.gradients(subject.build())
    found = batch.gradients(subject.build())
    require_same(found[0], expected[0], 'the value of a second instance', rtol=0, atol=0)


@check(excuse=lambda subject: subject.own_gradient)
def _derivative(subject: Subject) -> None:
    """The gradient is the derivative of the value, by finite differences in float64.

    A term that is detached, or a formula of a backward that is off by a factor, trains on something
    else than the loss shows. A loss whose gradient is set by a rule says so by ``own_gradient``.
    """
    for seed in range(3):
        batch = subject.batch(seed=seed)
        loss = subject.build()
        found = batch.gradients(copy.deepcopy(loss))[1]
        directions = [torch.randn_like(x) for x in batch.leaves]
        along = sum((x * v).sum() for x, v in zip(found, directions))
        for step, rtol, atol in STEPS:
            sides = []
            for sign in (step, -step):
                leaves = [x + sign * v for x, v in zip(batch.leaves, directions)]
                with torch.no_grad():  # of a copy: the state of the loss stays
                    sides.append(batch.with_leaves(leaves).of(copy.deepcopy(loss)).double())
            difference = (sides[0] - sides[1]) / (2 * step)
            if torch.isclose(along.double(), difference, rtol=rtol, atol=atol):
                break
        else:
            text = f'autograd says {float(along):.6g}, differences {float(difference):.6g}'
            require(False, f'along a random direction {text}')


#: Length of a step, and tolerances: the second for a loss that computes in float32.
STEPS = [(1e-6, 1e-4, 1e-6), (1e-3, 2e-3, 1e-3)]


@check()
def _grad_output(subject: Subject) -> None:
    """Three times the loss has three times the gradient.

    A backward of its own that forgets the incoming gradient ignores the weight of the loss in a
    sum, gradient scaling and gradient accumulation.
    """
    batch = subject.batch()
    leaves = [x.clone().requires_grad_() for x in batch.leaves]
    expected = batch.gradients(subject.build())[1]
    value = batch.with_leaves(leaves).of(subject.build())
    found = torch.autograd.grad(3 * value, leaves)
    require_same(list(found), [3 * x for x in expected], 'a gradient of three times the loss')


@check(
    refusals=(Exception,),
    excuse=lambda subject: '' if subject.dtype == torch.float64 else 'differences need float64',
)
def _second_derivative(subject: Subject) -> None:
    """Gradients of gradients are right or refused.

    A gradient penalty or a Hessian takes them. A backward of its own that autograd does not see
    into gives a wrong one without a word.
    """
    batch = subject.batch(6, 1)
    loss = subject.build()
    directions = [torch.randn_like(x) for x in batch.leaves]

    def gradients(step: float, create_graph: bool) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        leaves = [
            (x + step * v).detach().requires_grad_() for x, v in zip(batch.leaves, directions)
        ]
        # A copy: the state of the loss is the same in each call.
        value = batch.with_leaves(leaves).of(copy.deepcopy(loss))
        return leaves, torch.autograd.grad(value, leaves, create_graph=create_graph)

    plain = gradients(0.0, False)[1]
    leaves, kept = gradients(0.0, True)
    # Who only looks at the gradient is not refused, and gets the same.
    require_same(list(kept), list(plain), 'a gradient under create_graph=True', rtol=1e-9)
    # The product of the second derivatives with a direction.
    slope = sum((g * v).sum() for g, v in zip(kept, directions))
    found = [None] * len(leaves)
    if slope.requires_grad:
        found = torch.autograd.grad(slope, leaves, allow_unused=True)
    found = [torch.zeros_like(x) if y is None else y for x, y in zip(leaves, found)]

    def require_right(step: float, rtol: float, atol: float) -> None:
        up = gradients(step, False)[1]
        down = gradients(-step, False)[1]
        expected = [(a - b) / (2 * step) for a, b in zip(up, down)]
        require_same(found, expected, 'a second derivative', rtol=rtol, atol=atol)

    try:
        require_right(1e-6, 1e-4, 1e-6)
    except CheckFailedError:
        # A loss that computes in float32, or does in part, takes a longer step.
        require_right(1e-3, 1e-2, 1e-3 * max(float(x.abs().max()) for x in found))


@check(is_usual=False)
def _function_transform(subject: Subject) -> None:
    """``torch.func.grad`` gives the gradient of ``backward()``, or is refused.

    In evaluation: a transform keeps nothing. Gradients by sample and meta-learning are taken so.
    """
    plain = subject.build()
    loss = subject.build()
    if isinstance(loss, torch.nn.Module):
        plain = plain.eval()
        loss = loss.eval()
    batch = subject.batch()
    _, expected = batch.gradients(plain)
    slopes = torch.func.grad(lambda leaves: batch.with_leaves(leaves).of(loss))(batch.leaves)
    require_same([*slopes], expected, 'a gradient by torch.func')
