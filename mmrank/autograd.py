"""Gradients that are written out, whose derivatives are refused; what may be done when.

``torch.autograd.function.once_differentiable`` is not enough: it refuses in ``backward()`` alone.
``torch.autograd.grad`` asks only for what leads to its inputs, which a refusal of PyTorch does not,
and the answer is wrong without a word; so it is where the incoming gradient is a constant.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from mmrank.errors import UserNotImplementedError


class Function(torch.autograd.Function):
    """Base of functions whose gradient is written out.

    ``torch.func`` would derive, or batch, only what it sees: UserNotImplementedError there.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if inside_transform():
            raise UserNotImplementedError(
                f'{cls.__name__.strip("_")} of mmrank has a gradient that is written out, which '
                'torch.func (grad, vmap, jacrev) cannot take. Fix: loss.backward() or '
                'torch.autograd.grad(loss, inputs), for each sample in a loop'
            )
        return super().apply(*args)


class _Refusal(Function):
    """Identity of gradients that cannot be differentiated."""

    @staticmethod
    def forward(ctx, name, number, *tensors):
        ctx.name = name
        return tuple(x.clone() for x in tensors[:number])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            f'{ctx.name} has no second derivative: its gradient is computed by a formula that '
            'autograd does not see. Take gradients of this loss without create_graph=True, and '
            'leave it out of a gradient penalty or a Hessian'
        )


def once_differentiable(name: str) -> Callable[[Callable], Callable[..., Any]]:
    """Make the ``backward`` of an autograd function, ``name`` for users, refuse to be derived.

    The gradient itself may be taken with ``create_graph=True``; the error comes where it is derived
    by something that it depends on: an incoming gradient, or an input that ``forward`` gave to
    ``save_for_backward``. A function that is not linear has to save all inputs that have a
    gradient.
    """

    def decorate(backward: Callable) -> Callable[..., Any]:
        @wraps(backward)
        def first_order(ctx, *grads):
            device = next(x for x in grads if isinstance(x, Tensor)).device.type
            # Backward may run inside autocast, which would put its products into half precision.
            with torch.no_grad(), torch.autocast(device, enabled=False):
                found = backward(ctx, *grads)
            # A compiled graph has no second derivative in any case.
            if not torch.is_grad_enabled() or is_compiling():
                return found
            causes = [
                x for x in (*grads, *ctx.saved_tensors) if isinstance(x, Tensor) and x.requires_grad
            ]
            several = found if isinstance(found, tuple) else (found,)
            tensors = [x.detach() for x in several if isinstance(x, Tensor)]
            if not causes or not tensors:
                return found
            refusing = iter(_Refusal.apply(name, len(tensors), *tensors, *causes))
            several = tuple(next(refusing) if isinstance(x, Tensor) else x for x in several)
            return several if isinstance(found, tuple) else several[0]

        return first_order

    return decorate


#: Whether the call is being traced by ``torch.compile``, as far as the release can say.
is_compiling: Callable[[], bool] = getattr(
    getattr(torch, 'compiler', None), 'is_compiling', lambda: False
)


def inside_transform() -> bool:
    """Whether ``torch.func`` is deriving or batching the call; a compiled graph does not look."""
    return not is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def _unwrapped(values: Tensor) -> Tensor:
    """What a tensor of ``torch.func`` stands for, all samples of a batch."""
    while torch._C._functorch.is_functorch_wrapped_tensor(values):
        values = torch._C._functorch.get_unwrapped(values)
    return values


def can_sync(values: Tensor) -> bool:
    """Whether the host may look at values, as NumPy does, without waiting for them.

    A loss of lists asks once, see ``RankedLists.on_host``.
    """
    if values.device.type != 'cpu' or is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def violated(condition: Tensor, message: str) -> bool:
    """Whether a () bool condition on values does not hold.

    On a GPU and in a compiled graph it is an assertion with the message, without waiting.
    """
    if can_sync(condition):
        return not condition
    if inside_transform():
        condition = _unwrapped(_unwrapped(condition).all())
    if condition.device.type == 'cpu' and not is_compiling():
        return not condition
    torch._assert_async(condition, message)
    return False


def inside_backward() -> bool:
    """Whether autograd is running backward in this thread.

    A forward that runs now is a recomputation by activation checkpointing: a state has counted its
    batch already. A compiled graph does not look: compile no loss that is checkpointed.
    """
    return not is_compiling() and torch._C._current_graph_task_id() != -1
