"""Each check finds its fault, and a right loss passes."""

import random
import sys
from functools import partial

import numpy as np
import pytest
import torch
from broken_losses import BROKEN, mean_of_positives, soft_average_precision
from docs_blocks import PAGES, blocks
from gloo_processes import run_on_ranks
from torch import nn

from mmrank.errors import UserError
from mmrank.testing import CALLS, CHECKS, check_loss, parametrize_with_checks, subject_of

OF_RANKS = [name for name in CHECKS if name.endswith('ranks') or name.startswith('rank')]
#: What tells the checks of a loss that names no metric of a right limit.
LIMIT = dict(metric='auroc', limit=partial(partial, soft_average_precision, tau=1e-4))


def broken(name):
    loss, call = BROKEN[name]
    return check_loss(
        loss, call, checks=[name], promises=[name], **(LIMIT if name == 'metric' else {})
    )


def test_each_check_has_a_reason_and_a_loss_that_fails_it():
    assert BROKEN.keys() == CHECKS.keys()
    for check in CHECKS.values():
        assert check.reason.endswith('.')
        assert len(check.reason.splitlines()) <= 8


@pytest.mark.parametrize('name', [x for x in BROKEN if x not in [*OF_RANKS, 'compile']])
def test_a_broken_loss_fails(name):
    report = broken(name)
    (failure,) = report.failures
    assert failure.check == name
    assert failure.message


@pytest.mark.processes
@pytest.mark.parametrize(
    'name', ['compile', *(pytest.param(x, marks=pytest.mark.slow) for x in OF_RANKS)]
)
def test_a_broken_loss_fails_on_ranks_and_compiled(name):
    report = broken(name)
    assert len(report.failures) == 1


@pytest.mark.processes
@pytest.mark.slow
def test_a_right_loss_on_ranks_passes():
    """A mean over samples is the mean of the means of equal shares."""
    report = check_loss(nn.L1Loss(), 'numbers', checks=['two_ranks', 'three_ranks'])
    assert report.counts()['passed'] == 3


def test_a_metric_in_the_limit():
    settings = dict(metric='average_precision', limit=LIMIT['limit'])
    report = check_loss(soft_average_precision, 'binary', checks=['metric'], **settings)
    assert not report.failures


def test_outcomes():
    report = check_loss(mean_of_positives, 'binary', not_promised=dict(no_positives='rare'))
    found = {x.check: x for x in report.results}
    assert found['value'].outcome == 'passed'
    assert found['no_positives'].outcome == 'not promised'
    assert found['no_positives'].message == 'rare'
    assert found['infinities'].outcome in ('passed', 'not promised')
    assert found['deepcopy'].outcome == 'not applicable'
    assert 'compile' not in found
    assert found['no_positives'].message in str(report)
    assert sum(report.counts().values()) == len(report.results)


def refuses(scores, labels):
    if not labels.any():
        raise ValueError('no positive')
    return scores.square().mean()


def test_a_refusal_is_no_failure():
    report = check_loss(refuses, 'binary', checks=['no_positives'])
    assert [x.outcome for x in report.results] == ['passed', 'refused']


def test_a_wrong_call_is_reported():
    report = check_loss(nn.CrossEntropyLoss(), 'triplets')
    assert [x.check for x in report.failures] == ['value']
    assert report.counts()['not applicable'] == len(report.results) - 1
    with pytest.raises(TypeError, match='loss must be a function, a module or a class, got 3'):
        check_loss(3)


@parametrize_with_checks(
    [nn.CrossEntropyLoss(), nn.MultiMarginLoss], checks=['permutation', 'ties']
)
def test_parametrised(subject, check):
    assert check(subject).outcome == 'passed'


def test_parametrised_raises():
    with pytest.raises(AssertionError, match='upside_down: perfect_is_better: .* for perfect'):
        CHECKS['perfect_is_better'](subject_of(*BROKEN['perfect_is_better']))


@pytest.mark.parametrize('name', CALLS)
def test_a_call_makes_batches_of_samples(name):
    for size in (1, 7):
        batch = CALLS[name].batch(size)
        assert all(x.dtype == torch.float64 for x in batch.leaves)
        assert {len(x) for x in (*batch.leaves, *batch.fixed)} == {size}
    assert torch.equal(CALLS[name].batch(5, 1).leaves[0], CALLS[name].batch(5, 1).leaves[0])


class Queue(nn.Module):
    """Its state keeps the order of the batch, and its copies cannot be made after a step."""

    def __init__(self):
        super().__init__()
        self.register_buffer('held', torch.zeros(0, 3))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, scores, labels):
        if self.training and torch.is_grad_enabled():
            self.held = torch.cat([self.held, scores.detach()])
        self.last = self.scale * (scores - self.held.mean(0)).square().mean()
        return self.last


def focal_in_float32(scores, labels):
    each = nn.functional.cross_entropy(scores.float(), labels, reduction='none')
    return ((1 - (-each).exp()).square() * each).mean().double()


def test_no_false_alarms():
    report = check_loss(Queue, checks=['permutation', 'evaluation'], promises=['evaluation'])
    assert not report.failures
    assert not check_loss(focal_in_float32, checks=['second_derivative']).failures
    x, y = CALLS['boxes'].make(7, 0)
    assert len((x[0] - y[0])[:, 2:].sub((x[0] - y[0])[:, :2]).unique()) == 14


def needs_float32(scores, labels):
    return torch.zeros(12).index_add(0, torch.arange(len(scores)), scores.square().mean(1)).mean()


def test_a_loss_in_float32_alone():
    assert check_loss(needs_float32).failures[0].check == 'value'
    checks = ['derivative', 'permutation', 'float32']
    report = check_loss(needs_float32, dtype=torch.float32, checks=checks)
    assert not report.failures


def test_python_of_the_page(capsys):
    first, second = blocks(PAGES / 'loss_checks.md', 'python')
    exec(first, {})
    assert 'permutation              passed' in capsys.readouterr().out
    made = {}
    exec(second, made)
    (mark,) = made['test_losses'].pytestmark
    assert len(mark.args[1]) > 20
    made['test_losses'](*mark.args[1][0].values)


def _fails_on_one_rank(rank):
    if rank == 1:
        raise ValueError('no such batch')
    return rank


def test_an_error_of_a_rank_is_the_callers():
    with pytest.raises(ChildProcessError, match='(?s)process failed: .*no such batch'):
        run_on_ranks(_fails_on_one_rank, 2)


class _Careless(nn.Module):
    """Changes what all of a process share, when it is built and called."""

    def __init__(self):
        super().__init__()
        torch.set_default_dtype(torch.float64)
        np.random.seed(0)

    def forward(self, scores, labels):
        torch.set_default_dtype(torch.float16)
        torch.manual_seed(0)
        random.seed(0)
        return scores.square().mean()


def _state():
    return torch.get_default_dtype(), torch.rand(1), random.random(), np.random.rand()


def test_a_loss_changes_nothing_of_the_process():
    states = [random.getstate(), np.random.get_state(), torch.get_rng_state()]
    expected = _state()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    check_loss(_Careless, checks=['value', 'permutation'])
    assert _state() == expected


def _exits(scores, labels):
    sys.exit(3)


def test_a_loss_that_exits_fails():
    report = check_loss(_exits)
    assert [x.message for x in report.failures] == ['SystemExit: 3']


@pytest.mark.parametrize('known', [dict(promises=['tie']), dict(not_promised=dict(tie='why'))])
def test_an_unknown_promise_is_named(known):
    with pytest.raises(UserError, match="check 'tie' is unknown. Fix: one of value, "):
        check_loss(nn.CrossEntropyLoss(), **known)
