"""Checks of the compiler, and of tensors without values."""

import contextlib
from dataclasses import replace
from unittest import mock

import torch
from torch import nn

from mmrank.testing.check import check, require, require_same
from mmrank.testing.subject import Subject


@check(is_usual=False, is_slow=True, refusals=(Exception,))
def _compile(subject: Subject) -> None:
    """``torch.compile(fullgraph=True)`` traces the loss in one graph, and right.

    The backend is ``eager``: what is checked is the trace, a state and a backward of its own
    included, not the code that a compiler makes of it. Of the second batch the length is another.
    """
    torch.compiler.reset()
    plain = subject.build()
    other = subject.build()
    compiled = torch.compile(subject.call.apply, backend='eager', fullgraph=True, dynamic=True)
    for batch in (subject.batch(), subject.batch(size=10, seed=1)):
        expected = batch.gradients(plain)
        found = replace(batch, apply=compiled).gradients(other)
        require_same(found[0], expected[0], 'the compiled value', rtol=1e-10, atol=1e-12)
        require_same(found[1], expected[1], 'a compiled gradient', rtol=1e-10, atol=1e-12)
    if isinstance(plain, nn.Module):
        states = [[*x.state_dict().values()] for x in (other, plain)]
        require_same(*states, 'the state after compiled steps', rtol=1e-10, atol=1e-12)


@check(is_usual=False, refusals=(Exception,))
def _meta(subject: Subject) -> None:
    """A step runs on the meta device, whose tensors have no values.

    It fails where the loss looks at a number on the host, or makes a shape of one: ``item``,
    ``nonzero``, a branch. Each of these waits for a GPU.
    """
    loss = subject.build()
    loss = loss.to('meta') if isinstance(loss, nn.Module) else loss
    batch = subject.batch().mapped(lambda x: x.to('meta'))
    batch = batch.with_fixed([x.to('meta') for x in batch.fixed])
    # Meta has no autocast, and losses turn it off alone.
    with mock.patch.object(torch, 'autocast', return_value=contextlib.nullcontext()):
        value, slopes = batch.gradients(loss)
    require(value.shape == (), f'the value has the shape {tuple(value.shape)}')
    for slope, leaf in zip(slopes, batch.leaves):
        require(slope.shape == leaf.shape, 'a gradient has another shape than its tensor')
