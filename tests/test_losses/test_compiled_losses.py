"""Every registered loss under ``torch.compile``, against itself without.

The backend is ``eager``: what is tested is that torch traces a loss right,
its state and its own gradients included, not the code that it generates.
"""

import pytest
import registered_losses
import torch

#: Losses whose graph breaks: at a size that depends on the number of positives, at a state outside
#: of the graph, or in another package.
BREAKS = {
    'APLoss',
    'AUCLoss',
    'DRLoss',
    'InBatchLoss',
    'ListwiseAPLoss',
    'MAUCLoss',
    'PMLLoss',
    'RankSortLoss',
    'SOAPLoss',
    'SOPRCLoss',
    'SigLIPLoss',
    'SimCoLoss',
    'SmoothAPLoss',
    'SoDeepLoss',
    'SumLoss',
}
#: Each loss once, with its first settings.
CASES = {case.name: case for case in reversed(registered_losses.cases())}


@pytest.mark.processes  # as slow as those
@pytest.mark.parametrize(
    'case',
    [
        pytest.param(
            case,
            # In the default run one whose pairs have one tensor on both sides, and one whole graph.
            marks=[] if name in ('SmoothAPLoss', 'StableAPLoss') else pytest.mark.slow,
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
    whole = case.name not in BREAKS
    compiler = torch.compile(backend='eager', fullgraph=whole, dynamic=whole or None)
    monkeypatch.setitem(registered_losses.CALLS, case.kind, compiler(call))
    got = [batch.gradients(compiled) for batch in batches]
    close = dict(rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got, expected, **close)
    torch.testing.assert_close(dict(compiled.state_dict()), dict(plain.state_dict()), **close)
