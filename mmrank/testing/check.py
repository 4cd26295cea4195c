"""A check: its name, its reason and its function."""

import contextlib
import inspect
import random
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from mmrank.testing.subject import Subject

PASSED = 'passed'
FAILED = 'failed'
REFUSED = 'refused'
NOT_APPLICABLE = 'not applicable'
NOT_PROMISED = 'not promised'
OUTCOMES = (PASSED, FAILED, REFUSED, NOT_APPLICABLE, NOT_PROMISED)
#: What a loss raises that says no: an ``assert`` of its own is one.
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)


class CheckFailedError(AssertionError):
    """A check found what it looks for."""


@dataclass(frozen=True)
class Result:
    """What a check found."""

    check: str  # Name of the check
    outcome: str  # One of :data:`OUTCOMES`
    message: str = ''  # What was found, in one line


@dataclass(frozen=True)
class Check:
    """A named check. Called with a subject, it returns a :class:`Result` or raises."""

    name: str  # Its name
    function: Callable[[Subject], None]  # Looks at a subject; raises CheckFailedError
    is_usual: bool = True  # Whether every loss is held to it, not only one that promises it
    is_slow: bool = False  # Whether it takes seconds
    refusals: tuple[type[Exception], ...] = REFUSALS  # Errors by which a loss says no
    #: Why it says nothing of a subject; '': it does.
    excuse: Callable[[Subject], str] = lambda subject: ''

    def __str__(self) -> str:
        return self.name

    @property
    def reason(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or '')

    def result(self, subject: Subject) -> Result:
        """What it finds, without raising."""
        excuse = self.excuse(subject)
        if excuse:
            return Result(self.name, NOT_APPLICABLE, excuse)
        try:
            with shielded():
                self.function(subject)
        except CheckFailedError as error:
            return self._failure(subject, str(error))
        except self.refusals as error:
            return Result(self.name, REFUSED, _one_line(error))
        except (Exception, SystemExit) as error:
            return self._failure(subject, _one_line(error))
        return Result(self.name, PASSED)

    def _failure(self, subject: Subject, message: str) -> Result:
        if self.name in subject.not_promised:
            return Result(self.name, NOT_PROMISED, subject.not_promised[self.name])
        promised = self.is_usual or self.name in subject.promises
        return Result(self.name, FAILED if promised else NOT_PROMISED, message)

    def __call__(self, subject: Subject) -> Result:
        """What it finds; CheckFailedError if the subject fails."""
        result = self.result(subject)
        if result.outcome == FAILED:
            raise CheckFailedError(f'{subject}: {self.name}: {result.message}\n\n{self.reason}')
        return result


@contextlib.contextmanager
def shielded():
    """Without warnings; what a loss changes for the whole process is put back."""
    dtype = torch.get_default_dtype()
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        torch.set_default_dtype(dtype)
        random.setstate(states[0])
        np.random.set_state(states[1])


def _one_line(error: BaseException) -> str:
    text = ' '.join(str(error).split())
    return textwrap.shorten(f'{type(error).__name__}: {text}', 500, placeholder=' ...')


def check(**options: object) -> Callable[[Callable], Check]:
    """Make a check of a function ``_name``, with other fields of :class:`Check`."""

    def decorate(function: Callable[[Subject], None]) -> Check:
        return Check(function.__name__.removeprefix('_'), function, **options)

    return decorate


def is_a_function(subject: Subject) -> str:
    """The excuse of a check of state."""
    return '' if subject.is_module else 'a function has no state'


def require(holds: object, message: str) -> None:
    """Fail with a message unless something holds."""
    if not holds:
        raise CheckFailedError(message)


def require_same(
    found: object, expected: object, what: str, rtol: float = 1e-6, atol: float = 1e-8
) -> None:
    """Fail unless tensors, or lists of them, are the same up to a tolerance."""
    if isinstance(found, torch.Tensor):
        found = [found]
        expected = [expected]
    for x, y in zip(found, expected, strict=True):
        if x.shape != y.shape:
            raise CheckFailedError(f'{what}: shape {tuple(x.shape)} instead of {tuple(y.shape)}')
        # A loss that is checked in float32 alone has seven digits; 0 asks for the same bits.
        least = 1e-4 if rtol and y.dtype == torch.float32 else 0.0
        x = x.detach().double()
        y = y.detach().double()
        limits = dict(rtol=max(rtol, least), atol=max(atol, least / 10))
        if not torch.allclose(x, y, **limits, equal_nan=True):
            gap = torch.where(x.isnan() == y.isnan(), (x - y).abs().nan_to_num(0), torch.inf)
            i = int(gap.argmax())
            both = f'{float(x.flatten()[i]):.6g} instead of {float(y.flatten()[i]):.6g}'
            raise CheckFailedError(f'{what}: {both}')


def require_finite(value: torch.Tensor, gradients: list[torch.Tensor]) -> None:
    """Fail unless a value and gradients are finite."""
    shown = value.detach().flatten()[:3].tolist()
    require(value.isfinite().all(), f'the value is {shown}')
    for gradient in gradients:
        bad = gradient[~gradient.isfinite()]
        require(not len(bad), f'{len(bad)} of {gradient.numel()} gradients are {bad[:1].tolist()}')
