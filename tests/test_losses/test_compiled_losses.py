"""Every registered loss on the path of a device: the host looks at no value, in one graph too.

Meta tensors have no values, so that a step on them fails where it looks at one or where a shape
depends on one: ``item``, ``nonzero``, a branch. (CUDA tensors of a ``FakeTensorMode`` would do as
well, but autograd refuses those without a GPU.) The backend of the compiler is ``eager``: what is
tested is that torch traces a loss right, its state and its own gradients included, not the code
that it generates.
"""

import contextlib
from dataclasses import replace

import pytest
import registered_losses
import torch

from mmrank.losses.ranking import base

#: Losses without one graph, and why.
BREAKS = {
    # Its miners and distances are those of pytorch-metric-learning, which finds pairs by nonzero.
    'PMLLoss'
}
CASES = registered_losses.cases()
#: Each loss once for each way to call it, with its first settings.
FIRST = {(case.name, case.kind): case for case in reversed(CASES)}
#: In the default run: one whose pairs have one tensor on both sides, and one of queries.
SHOWN = [('SmoothAPLoss', 'rows'), ('StableAPLoss', 'queries')]
CLOSE = dict(rtol=1e-10, atol=1e-12)


def compare(case, change, batches):
    """Value, gradients and state of a loss after ``change``, against itself before."""
    plain, other = case.build(), case.build()
    expected = [batch.gradients(plain) for batch in batches]
    change()
    torch.testing.assert_close([batch.gradients(other) for batch in batches], expected, **CLOSE)
    torch.testing.assert_close(dict(other.state_dict()), dict(plain.state_dict()), **CLOSE)


@pytest.mark.parametrize('case', CASES, ids=str)
def test_the_path_of_a_device_gives_the_same(case, monkeypatch):
    def take_it():
        for module in ('autograd', 'losses.pairs.pair_sums'):
            monkeypatch.setattr(f'mmrank.{module}.is_compiling', lambda: True)

    compare(case, take_it, [case.batch(seed=seed) for seed in range(2)])


@pytest.mark.parametrize('case', [x for x in CASES if x.name not in BREAKS], ids=str)
def test_a_step_looks_at_no_value(case, monkeypatch):
    if case.settings.get('storage') == 'host':
        pytest.skip('a state on the host is read there')
    # Meta has no autocast, and the losses turn it off alone.
    monkeypatch.setattr(torch, 'autocast', lambda *_, **__: contextlib.nullcontext())
    batch = case.batch()
    leaves, fixed = ([x.to('meta') for x in part] for part in (batch.leaves, batch.fixed))
    value, slopes = replace(batch, leaves=leaves, fixed=fixed).gradients(case.build().to('meta'))
    assert value.shape == ()
    assert [x.shape for x in slopes] == [x.shape for x in leaves]


def test_long_lists_are_worth_a_wait():
    """Where comparing every score takes longer, the positives alone are compared."""
    for pairs, scores, few in ((base.MOST_PAIRS, 2**12, False), (base.MOST_PAIRS, 2**13, True)):
        labels = torch.zeros(1, scores, dtype=torch.bool, device='meta')
        wait = pytest.raises(NotImplementedError, match='nonzero')
        with wait if few else contextlib.nullcontext():
            assert base.positive_index(labels, pairs)[0].shape == labels.shape
        assert base.positive_index(labels, float('inf'))[1] is labels


@pytest.mark.processes  # as slow as those
@pytest.mark.parametrize(
    'case',
    [
        pytest.param(case, marks=[] if key in SHOWN else pytest.mark.slow, id='-'.join(key))
        for key, case in sorted(FIRST.items())
        if case.name not in BREAKS
    ],
)
def test_compiled(case, monkeypatch):
    torch.compiler.reset()
    call = registered_losses.CALLS[case.kind]
    compiled = torch.compile(call, backend='eager', fullgraph=True, dynamic=True)

    def compile_it():
        monkeypatch.setitem(registered_losses.CALLS, case.kind, compiled)

    # Of the second one the lists have other lengths.
    compare(case, compile_it, [case.batch(), case.batch(size=10, seed=1)])
