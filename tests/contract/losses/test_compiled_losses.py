"""Every registered loss on the path of a device: the host looks at no value, in one graph too.

That a step looks at no value is a check of mmrank.testing, too: test_registered_losses.py.
"""

import pytest
import subjects
import torch

from mmrank.testing import CHECKS

CASES = subjects.cases()
#: Each loss once for each way to call it, with its first settings.
FIRST = {(case.name, case.kind): case for case in reversed(CASES)}
#: In the default run: one whose pairs have one tensor on both sides, one of queries, and one that
#: has a number of classes.
SHOWN = [('APLoss', 'rows'), ('SmoothAPLoss', 'rows'), ('StableAPLoss', 'queries')]
SHOWN += [('LDAMLoss', 'rows')]


@pytest.mark.parametrize('case', CASES, ids=str)
def test_the_path_of_a_device_gives_the_same(case, monkeypatch):
    """Value, gradients and state."""
    plain, other = case.build(), case.build()
    batches = [case.batch(seed=seed) for seed in range(2)]
    expected = [batch.gradients(plain) for batch in batches]
    for module in ('autograd', 'tensors', 'losses.pairs', 'losses.pairs_smooth'):
        monkeypatch.setattr(f'mmrank.{module}.is_compiling', lambda: True)
    close = dict(rtol=1e-10, atol=1e-12)
    torch.testing.assert_close([batch.gradients(other) for batch in batches], expected, **close)
    torch.testing.assert_close(dict(other.state_dict()), dict(plain.state_dict()), **close)


@pytest.mark.processes
@pytest.mark.parametrize(
    'key',
    [
        ('InfoNCELoss', 'views'),
        pytest.param(('NUCLRLoss', 'views'), marks=pytest.mark.slow),
        ('InBatchLoss', 'pairs'),
    ],
    ids=str,
)
def test_one_graph_serves_all_sizes_of_a_batch(key):
    case = FIRST[key]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    loss = case.build()
    compiled = torch.compile(loss, backend='aot_eager', dynamic=True, fullgraph=True)
    for size in (12, 7, 9, 5, 11):
        batch = case.batch(size)
        weight = torch.ones(size) if key[0] == 'NUCLRLoss' else None
        leaves = [x.clone().requires_grad_() for x in batch.leaves]
        compiled(*leaves, *batch.fixed, weight=weight).backward()
    assert torch._dynamo.utils.counters['stats']['unique_graphs'] <= 2


@pytest.mark.processes  # as slow as those
@pytest.mark.parametrize(
    'case',
    [
        pytest.param(case, marks=[] if key in SHOWN else pytest.mark.slow, id='-'.join(key))
        for key, case in sorted(FIRST.items())
        if subjects.row_of(case.name).is_one_graph
    ],
)
def test_compiled(case):
    assert CHECKS['compile'](subjects.subject_of_case(case)).outcome == 'passed'
