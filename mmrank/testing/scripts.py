"""A short script that repeats a failed check without mmrank."""

import inspect
import textwrap
from collections.abc import Callable

import torch

from mmrank.testing.calls import call_in_order
from mmrank.testing.check import Check, Result
from mmrank.testing.subject import Subject

FLOAT32 = """
make64 = make
def make(size, seed):
    x, y = make64(size, seed)
    return [t.float() for t in x], y
""".strip()


def _source(function: Callable, name: str) -> str:
    """Source of a function under another name."""
    text = textwrap.dedent(inspect.getsource(function))
    return text.replace(f'def {function.__name__}(', f'def {name}(', 1).rstrip()


def script_of(check: Check, subject: Subject, result: Result) -> str:
    """Python that repeats a check: its exit status is 0 where the loss passes.

    A check over several processes is started by ``torchrun --nproc-per-node 2``.
    """
    call = subject.call
    title = f'"""{subject}: {check.name}.\n\n{check.reason}\n\nFound: {result.message}\n"""'
    imports, _, build = subject.source.partition('\n\n')
    is_double = subject.dtype == torch.float64
    if subject.has_parameters() and is_double:
        build += '.double()'
    parts = [title, f'import torch\n{imports}', build, _source(call.make, 'make')]
    if not is_double:
        parts.append(FLOAT32)
    if call.apply is not call_in_order:
        parts.append(_source(call.apply, 'apply'))
    for name in ('no_positives', 'all_positives', 'perfect'):
        if f'{name}(' in check.script:
            parts.append(_source(getattr(call, name), name))
    inner = 'loss(*x, *y)' if call.apply is call_in_order else 'apply(loss, *x, *y)'
    parts.append(f'def call(loss, x, y): return {inner}')
    parts.append('torch.manual_seed(0)\nx, y = make(12, 0)\nx = [t.requires_grad_() for t in x]')
    return '\n\n'.join([*filter(None, parts), check.script]) + '\n'
