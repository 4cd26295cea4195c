"""What a GPU would do, told by shapes alone; no GPU is needed.

Without values there is nothing to wait for: the same launches of the same sizes run for any scores,
which is what a CUDA graph replays.
"""

import os

import pytest
import torch

pytest.importorskip('triton')
if os.environ.get('TRITON_INTERPRET') == '1':
    pytest.skip('launches are not run', allow_module_level=True)

from torch._dynamo.backends.common import aot_autograd

from mmrank.functional import OneSidedHuber, error_driven_ap, pairwise_surrogate_sum, stable_ap_loss
from mmrank.functional.pairwise import interval_sums
from research.pairwise_kernels.dry_run import dry_run

SCORES = 300_000
LAUNCHES = [
    'rank_kernel',
    'table_kernel',
    'moment_kernel',
    'collect_kernel',
    'evaluate_kernel',
    'coefficient_kernel',
    'gradient_kernel',
]


def leaves(positives=60, negatives=SCORES):
    return tuple(torch.empty(n, device='meta', requires_grad=True) for n in (positives, negatives))


def pair_sum(pos, neg, method):
    return pairwise_surrogate_sum(pos[None], neg[None], OneSidedHuber(1.0), method=method).sum()


def stable_ap(pos, neg, method):
    mean = torch.zeros((), device='meta')
    setting = dict(tau=1.0, bound=21.0, rho=1.0, method=method)
    return stable_ap_loss(pos, neg, mean, **setting)


def run(function, method):
    def step():
        pos, neg = leaves()
        return torch.autograd.grad(function(pos, neg, method), (pos, neg))

    return dry_run(step)


@pytest.mark.parametrize('function', [pair_sum, stable_ap])
def test_eight_kernels_and_nothing_else_moves_the_scores(function):
    found = run(function, 'triton')
    assert [x.kernel for x in found.launches] == LAUNCHES
    # The eighth sets the sums to 0.
    cleared = [op.name for op in found.operators if op.name.startswith('aten.new_zeros')]
    assert len(cleared) == 1
    assert found.passes_over(SCORES) == []


@pytest.mark.parametrize('method', ['triton', 'intervals'])
@pytest.mark.parametrize('function', [pair_sum, stable_ap])
def test_the_host_waits_for_nothing(function, method):
    """Meta tensors have no value to wait for; copies are looked for."""
    found = run(function, method)
    assert found.operators
    assert found.copies_between_devices() == []


@pytest.mark.parametrize(
    'wait',
    [lambda x: x.sum().item(), lambda x: bool(x.any()), lambda x: x.nonzero(), lambda x: x[x > 0]],
)
def test_a_step_that_waits_is_found(wait):
    with pytest.raises((RuntimeError, NotImplementedError)):
        dry_run(lambda: wait(torch.empty(9, device='meta')))


@pytest.mark.parametrize(
    'copy',
    [
        lambda: torch.as_tensor(0.5, device='meta'),
        lambda: torch.tensor([0.5, 1], device='meta'),
        lambda: torch.empty(3, device='meta').new_tensor(1),
        lambda: torch.empty(3, device='meta')[torch.tensor([0, 2])],
        lambda: torch.zeros(3).to('meta'),
        lambda: torch.empty(3, device='meta').copy_(torch.zeros(3)),
    ],
)
def test_a_copy_to_the_device_is_found(copy):
    assert len(dry_run(copy).copies_between_devices()) == 1


def test_passes_over_the_scores_are_found():
    """The torch path has many: it is no fused kernel."""
    assert len(run(pair_sum, 'intervals').passes_over(SCORES)) > 20
    found = dry_run(lambda: leaves()[1].view(2, -1).detach()[0])
    assert found.passes_over(2) == []


@pytest.mark.parametrize('method', ['triton', 'intervals'])
def test_compiled_in_one_graph_for_cuda_graphs(monkeypatch, method):
    """One graph each way, without a value of the host or a CPU tensor.

    Inductor captures such graphs as CUDA graphs, ``mode='reduce-overhead'``.
    """
    monkeypatch.setattr(interval_sums, 'can_run', lambda device: True)
    graphs = []

    def record(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(
        lambda pos, neg: pair_sum(pos, neg * 2, method),
        fullgraph=True,
        backend=aot_autograd(fw_compiler=record, bw_compiler=record),
    )
    compiled(*leaves()).backward()
    assert len(graphs) == 2
    for graph, part in zip(graphs, ('sums', 'gradient')):
        nodes = [n for n in graph.graph.nodes if n.op == 'call_function']
        names = [str(n.target) for n in nodes]
        assert sum(f'interval_{part}' in name for name in names) == 1
        assert not any('local_scalar' in name for name in names)
        tensors = [
            x
            for n in graph.graph.nodes
            for x in torch.utils._pytree.tree_leaves(n.meta.get('val'))
            if isinstance(x, torch.Tensor)
        ]
        assert {x.device.type for x in tensors} == {'meta'}


def test_ap_loss_waits_for_nothing():
    found = run(
        lambda pos, neg, method: error_driven_ap(pos, neg, method=method, interpolate=False),
        'triton',
    )
    assert found.copies_between_devices() == []
    assert [x.kernel for x in found.launches][:5] == LAUNCHES[:5]
