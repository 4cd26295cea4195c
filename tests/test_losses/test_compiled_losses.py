"""Every registered loss under ``torch.compile``, against itself without.

The backend is ``eager``: what is tested is that torch traces a loss right,
its state and its own gradients included, not the code that it generates.
"""

import pytest
import registered_losses
import torch

#: Each loss once, with its first settings.
CASES = {case.name: case for case in reversed(registered_losses.cases())}


@pytest.mark.processes  # as slow as those
@pytest.mark.parametrize(
    'case',
    [
        pytest.param(
            case,
            # Of one in the default run, whose pairs have one tensor on both sides.
            marks=[] if name == 'SmoothAPLoss' else pytest.mark.slow,
            id=name,
        )
        for name, case in sorted(CASES.items())
    ],
)
def test_compiled(case, monkeypatch):
    plain, compiled = case.build(), case.build()
    # Of the second one the lists have other lengths.
    batches = [case.batch(seed=seed) for seed in range(2)]
    expected = [batch.gradients(plain) for batch in batches]
    torch.compiler.reset()
    call = registered_losses.CALLS[case.kind]
    monkeypatch.setitem(registered_losses.CALLS, case.kind, torch.compile(call, backend='eager'))
    got = [batch.gradients(compiled) for batch in batches]
    close = dict(rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got, expected, **close)
    torch.testing.assert_close(dict(compiled.state_dict()), dict(plain.state_dict()), **close)
