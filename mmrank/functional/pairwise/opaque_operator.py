"""Functions that ``torch.compile`` calls but does not look into."""

from collections.abc import Callable

import torch
from torch import Tensor


def opaque_operator(name: str, fake: Callable) -> Callable:
    """Make an operator of a function that the compiler could not trace.

    Args:
        name: ``namespace::name`` of the operator.
        fake: Same arguments, returns empty tensors of the right shapes.

    Returns:
        A decorator. Before torch 2.4, which has no such operators, it leaves the function as it is:
        a compiled graph then breaks there.
    """

    def decorate(function: Callable) -> Callable:
        if not hasattr(torch.library, 'custom_op'):
            return function
        operator = torch.library.custom_op(name, mutates_args=())(function)
        operator.register_fake(fake)
        return operator

    return decorate


def is_compiling() -> bool:
    """Whether the call is being traced by ``torch.compile``."""
    compiler = getattr(torch, 'compiler', None)
    ask = getattr(compiler, 'is_compiling', None)
    return ask is not None and ask()


def on_host(values: Tensor) -> bool:
    """Whether the host may look at values without waiting for them."""
    return values.device.type == 'cpu' and not is_compiling()
