"""The loss that is checked: how it is built and called, and what it promises."""

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from mmrank.testing.calls import Batch, Call, Loss, call_of


@dataclass(frozen=True)
class Subject:
    """A loss, and what is known of it. :func:`subject_of` makes one of a loss."""

    name: str  # How reports name it
    builder: Callable[[], Loss]  # Returns a loss as after ``__init__``
    call: Call  # How it is called
    #: Why the gradient is not the derivative of the value: an error-driven update, weights that
    #: are constants. '': it is the derivative.
    own_gradient: str = ''
    promises: Collection[str] = ()  # Names of checks that it promises to pass beyond the usual ones
    #: Checks that it does not promise to pass, and why.
    not_promised: Mapping[str, str] = field(default_factory=dict)
    #: The metric that ``limit`` equals: ``'average_precision'``, ``'auroc'`` or ``'ndcg'``.
    metric: str = ''
    #: Returns the loss with settings that make it one minus the metric.
    limit: Callable[[], Loss] | None = None
    #: In what the batches are; float32 for a loss whose state takes nothing else.
    dtype: torch.dtype = torch.float64

    def __str__(self) -> str:
        return self.name

    def build(self, dtype: torch.dtype | None = None) -> Loss:
        """The loss with the same random numbers each time, its parameters in ``dtype``.

        None: the batches'.
        """
        torch.manual_seed(0)
        loss = self.builder()
        if isinstance(loss, nn.Module):
            for x in loss.parameters():
                x.data = x.data.to(dtype or self.dtype)
        return loss

    def batch(self, size: int = 12, seed: int = 0) -> Batch:
        return self.call.batch(size, seed).cast(self.dtype)

    @functools.cached_property
    def is_module(self) -> bool:
        return isinstance(self.builder(), nn.Module)

    def trained(self) -> Loss:
        """The loss with two batches behind it."""
        loss = self.build()
        for seed in range(2):
            self.batch(seed=seed).of(loss)
        return loss


def _itself(function: Loss) -> Loss:
    return function


def subject_of(loss: object, call: str | Call = 'scores', **known: object) -> Subject:
    """The subject of a loss and the way to call it, see :func:`mmrank.testing.check_loss`.

    ``known`` are fields of :class:`Subject`, such as ``own_gradient``. TypeError if the loss
    cannot be called, UserError if the way to call is unknown.
    """
    if not callable(loss):
        raise TypeError(f'loss must be a function, a module or a class, got {loss!r}')
    made = loss.func if isinstance(loss, functools.partial) else loss
    has_name = inspect.isclass(made) or inspect.isroutine(made)
    known.setdefault('name', (made if has_name else type(made)).__name__)
    if inspect.isclass(made):
        builder = loss
    elif isinstance(loss, nn.Module):
        builder = functools.partial(copy.deepcopy, loss)
    else:
        builder = functools.partial(_itself, loss)
    return Subject(builder=builder, call=call_of(call), **known)
