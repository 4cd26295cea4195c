"""Checks that any loss can take: of mmrank, of another library, or your own.

A call of :func:`check_loss` gives a table. The registered losses of mmrank take the same checks in
its tests.
"""

from mmrank.testing.calls import CALLS, Batch, Call
from mmrank.testing.check import Check, CheckFailedError, Result
from mmrank.testing.report import CHECKS, Report, check_loss, parametrize_with_checks
from mmrank.testing.subject import Subject, subject_of

__all__ = [
    'CALLS',
    'CHECKS',
    'Batch',
    'Call',
    'Check',
    'CheckFailedError',
    'Report',
    'Result',
    'Subject',
    'check_loss',
    'parametrize_with_checks',
    'subject_of',
]
