import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmrank.autograd import opaque_operator
from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.functional.pairwise import interval_sums
from mmrank.functional.pairwise.pairwise_surrogate import pair_evaluator
from mmrank.functional.pairwise.triton import sums as host

CASES = Path(__file__).with_name('triton_interpreter_cases.py')
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')


@pytest.mark.processes
@pytest.mark.skipif(importlib.util.find_spec('triton') is None, reason='needs triton')
@pytest.mark.parametrize('which', ['not slow', pytest.param('slow', marks=pytest.mark.slow)])
def test_kernels_in_the_interpreter(which):
    """In a process of its own: the switch must come before the import."""
    done = subprocess.run(
        [
            *(sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider'),
            *('--noconftest', '-m', which, CASES),
        ],
        env=dict(os.environ, TRITON_INTERPRET='1', OMP_NUM_THREADS='1'),
        cwd=CASES.parents[2],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('lists', [1, 80])
@pytest.mark.parametrize('width', [1, 3000, 2**20, 14_000_000, 2**30])
def test_packed_sums_cannot_overflow(width, lists, dtype):
    """Even if all scores of a copy lie at the end of one interval."""
    layout = host._format(dtype)
    parts, copies = host._parts_and_copies(lists, width)
    scores = host.SIZES.block * host.SIZES.tiles
    assert parts * scores >= width
    most = -(-parts // copies) * scores
    places = most * 2 ** layout['FRACTION']
    assert places < 2 ** layout['COUNT_AT']
    assert most * 2 ** layout['COUNT_AT'] + places < 2**63
    assert most * 2 ** layout['SQUARE'] < 2**63


def test_without_a_gpu_the_error_says_what_to_do(monkeypatch):
    monkeypatch.delenv('TRITON_INTERPRET', raising=False)
    one = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="use method='auto'"):
        pairwise_surrogate_sum(one, one, OneSidedHuber(1.0), method='triton')


@pytest.mark.parametrize('value', [None, '', '0'])
def test_auto_leaves_the_kernels_alone_unless_asked(monkeypatch, value):
    """No device has run them yet."""
    monkeypatch.delenv('MMRANK_TRITON', raising=False)
    if value is not None:
        monkeypatch.setenv('MMRANK_TRITON', value)
    monkeypatch.setattr(host, 'HAS_TRITON', True)
    monkeypatch.setattr(interval_sums, 'is_supported', lambda index: True)
    sums = pair_evaluator(OneSidedHuber(1.0), 2**30)
    assert not sums._is_fused((1, 2000), torch.device('cuda'))
    asked = pair_evaluator(OneSidedHuber(1.0), 2**30, 'triton')
    assert asked._is_fused((1, 2000), torch.device('cuda'))


def test_a_switch_that_says_neither_is_refused(monkeypatch):
    monkeypatch.setenv('MMRANK_TRITON', 'yes')
    sums = pair_evaluator(OneSidedHuber(1.0), 2**30)
    with pytest.raises(ValueError, match=r"='yes' is unknown; set it to 1"):
        sums._is_fused((1, 2000), torch.device('cuda'))


def test_asked_for_auto_takes_the_kernels_where_they_fit(monkeypatch):
    gpu, cpu = torch.device('cuda'), torch.device('cpu')
    sums = pair_evaluator(OneSidedHuber(1.0), 2**30)
    monkeypatch.setenv('MMRANK_TRITON', '1')
    monkeypatch.setattr(host, 'HAS_TRITON', True)
    supported = [True]
    monkeypatch.setattr(interval_sums, 'is_supported', lambda index: supported[0])
    assert sums._is_fused((1, 2000), gpu)
    assert sums._is_fused((80, 2000), gpu)
    assert not sums._is_fused((1, 2000), cpu)
    assert not sums._is_fused((1, 2**14 + 1), gpu)
    assert not sums._is_fused((2**12, 2**10), gpu)
    supported[0] = False
    assert not sums._is_fused((1, 2000), gpu)
    supported[0] = True
    reference = pair_evaluator(OneSidedHuber(1.0), 2**30, 'intervals')
    assert not reference._is_fused((1, 2000), gpu)
    monkeypatch.setattr(host, 'HAS_TRITON', False)
    assert not sums._is_fused((1, 2000), gpu)


def test_an_old_torch_without_operators_runs_the_function(monkeypatch):
    monkeypatch.delattr(torch.library, 'custom_op')
    assert opaque_operator('mmrank::none', None)(len) is len


def _gpu_problem(dtype, lists=1, positives=700, negatives=300_000):
    torch.manual_seed(0)
    pos = torch.randn(lists, positives, device='cuda').to(dtype)
    neg = torch.randn(lists, negatives, device='cuda').to(dtype) - 1
    return pos.requires_grad_(), neg.requires_grad_()


def _gpu_step(pos, neg, method='triton'):
    total = pairwise_surrogate_sum(pos, neg, OneSidedHuber(1.0), method=method)
    return total, *torch.autograd.grad(total.mean(), (pos, neg))


@needs_gpu
@pytest.mark.parametrize('lists', [1, 7])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_gpu_equals_torch(dtype, lists):
    pos, neg = _gpu_problem(dtype, lists)
    got, want = _gpu_step(pos, neg), _gpu_step(pos, neg, 'intervals')
    torch.testing.assert_close(got[0], want[0], rtol=1e-7, atol=0)
    for a, b in zip(got[1:], want[1:]):
        torch.testing.assert_close(a, b)


@needs_gpu
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_gpu_repeats_every_bit(dtype):
    pos, neg = _gpu_problem(dtype)
    first = _gpu_step(pos, neg)
    for _ in range(5):
        for a, b in zip(first, _gpu_step(pos, neg)):
            assert torch.equal(a, b)


@needs_gpu
def test_gpu_step_does_not_wait_for_the_host():
    pos, neg = _gpu_problem(torch.float32)
    _gpu_step(pos, neg)
    torch.cuda.set_sync_debug_mode('error')
    try:
        _gpu_step(pos, neg)
    finally:
        torch.cuda.set_sync_debug_mode('default')


@needs_gpu
def test_gpu_graph_replays_on_new_scores():
    pos, neg = _gpu_problem(torch.float32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            _gpu_step(pos, neg)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = _gpu_step(pos, neg)
    with torch.no_grad():
        pos += torch.randn_like(pos)
        neg *= 1.5
    graph.replay()
    for a, b in zip(got, _gpu_step(pos, neg)):
        assert torch.equal(a, b)


@needs_gpu
def test_gpu_compiles_in_one_graph(monkeypatch):
    monkeypatch.setenv('MMRANK_TRITON', '1')
    pos, neg = _gpu_problem(torch.float32)
    got = torch.compile(
        lambda p, n: pairwise_surrogate_sum(p, n, OneSidedHuber(1.0)), fullgraph=True
    )(pos, neg)
    assert torch.equal(got, _gpu_step(pos, neg)[0])


@pytest.mark.parametrize(
    ('capability', 'hip', 'compiler', 'expected'),
    [
        ((9, 0), None, 'gcc', True),
        ((7, 5), None, 'gcc', False),
        ((9, 0), '6.0', 'gcc', False),
        ((9, 0), None, None, False),
    ],
)
def test_auto_leaves_what_triton_does_not_compile_for(
    monkeypatch, capability, hip, compiler, expected
):
    monkeypatch.delenv('CC', raising=False)
    monkeypatch.setattr(host.shutil, 'which', lambda name: compiler)
    monkeypatch.setattr(torch.version, 'hip', hip)
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda index: capability)
    assert host.is_supported.__wrapped__(0) is expected
