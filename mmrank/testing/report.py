"""Run checks and show what they found."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mmrank.errors import UserError
from mmrank.testing.calls import Call
from mmrank.testing.check import FAILED, NOT_APPLICABLE, OUTCOMES, Check, Result, shielded
from mmrank.testing.checks import batches, copies, dtypes, gradients, graphs, growth, metrics, ranks
from mmrank.testing.subject import Subject, subject_of

MODULES = (gradients, batches, dtypes, copies, graphs, ranks, growth, metrics)
#: All checks by name, in the order of a report.
CHECKS: dict[str, Check] = {
    entry.name: entry
    for module in MODULES
    for entry in vars(module).values()
    if isinstance(entry, Check)
}


def _checks_named(names: Iterable[str] | None, slow: bool = False) -> list[Check]:
    """Checks by their names, else UserError; None: all of them, the slow ones if asked for."""
    if names is None:
        return [x for x in CHECKS.values() if slow or not x.is_slow]
    for name in names:
        if name not in CHECKS:
            raise UserError(f'check {name!r} is unknown. Fix: one of {", ".join(CHECKS)}')
    return [CHECKS[name] for name in names]


@dataclass(frozen=True)
class Report:
    """What the checks found of one loss. ``print`` shows it as a table."""

    subject: Subject  # The loss
    results: Sequence[Result]  # In the order of :data:`CHECKS`

    @property
    def failures(self) -> list[Result]:
        """Results of the checks that failed."""
        return [x for x in self.results if x.outcome == FAILED]

    def counts(self) -> dict[str, int]:
        """Number of checks by outcome."""
        return {x: sum(r.outcome == x for r in self.results) for x in OUTCOMES}

    def __str__(self) -> str:
        lines = [f'{self.subject}, called with {self.subject.call.name}']
        lines += [f'{x.check:24} {x.outcome:15} {x.message:.120}'.rstrip() for x in self.results]
        counts = [f'{number} {outcome}' for outcome, number in self.counts().items()]
        return '\n'.join([*lines, ', '.join(counts)])


def check_loss(
    loss: object,
    call: str | Call = 'scores',
    *,
    checks: Iterable[str] | None = None,
    slow: bool = False,
    **known: object,
) -> Report:
    """Check what every loss should keep to.

    Args:
        loss: A function or a module; a class, built without arguments; or a
            ``functools.partial`` of one of them.
        call: How it is called: one of the names of :data:`mmrank.testing.CALLS`, or a
            :class:`~mmrank.testing.Call` of your own.
        checks: Names of the checks to run. Default: all that take no seconds.
        slow: Run the slow ones too: the compiler and several processes.
        **known: What is known of the loss: ``own_gradient='why'`` where the gradient is set by a
            rule, ``promises=('compile', 'two_ranks')`` for checks beyond the usual ones,
            ``not_promised=dict(infinities='why')``, and others of
            :class:`~mmrank.testing.Subject`.

    Returns:
        The report: ``print`` it, or look at its ``failures``.

    Example:
        >>> from functools import partial
        >>> from torch.nn.functional import cross_entropy
        >>> report = check_loss(partial(cross_entropy, label_smoothing=0.1), 'scores')
        >>> report.failures
        []
    """
    for field in ('promises', 'not_promised'):
        _checks_named(known.get(field, ()))
    subject = subject_of(loss, call, **known)
    with shielded():
        subject.builder()  # A missing argument is not a fault of the loss: it is raised.
    first = CHECKS['value'].result(subject)
    rest = [x for x in _checks_named(checks, slow) if x.name != 'value']
    if first.outcome == FAILED:  # It cannot be called: no other check looks at it.
        excuse = 'the check of the value has failed'
        return Report(subject, [first, *(Result(x.name, NOT_APPLICABLE, excuse) for x in rest)])
    return Report(subject, [first, *(x.result(subject) for x in rest)])


def parametrize_with_checks(
    losses: Sequence[object],
    call: str | Call = 'scores',
    *,
    checks: Iterable[str] | None = None,
    slow: bool = False,
) -> object:
    """Decorate a test so that pytest runs it with each loss and each check that says something.

    Args:
        losses: Subjects, or losses as :func:`check_loss` takes them.
        call: How losses that are not subjects are called.
        checks: Names of the checks. Default: all that take no seconds.
        slow: The slow ones too.

    Example:
        >>> @parametrize_with_checks([nn.CrossEntropyLoss()])
        ... def test_losses(subject, check):
        ...     check(subject)
    """
    import pytest

    subjects = [x if isinstance(x, Subject) else subject_of(x, call) for x in losses]
    pairs = [
        pytest.param(subject, check, id=f'{subject}-{check}')
        for check in _checks_named(checks, slow)
        for subject in subjects
        if not check.excuse(subject)
    ]
    return pytest.mark.parametrize(('subject', 'check'), pairs)
