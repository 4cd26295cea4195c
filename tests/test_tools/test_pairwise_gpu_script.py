"""The GPU tools run on the CPU as well, at a small size."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked_processes import run_script
from rich.console import Console

from research.pairwise_kernels import size_tuning
from research.pairwise_kernels.verification import CheckResult

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    """The tool as a module."""
    path = ROOT / 'tools/benchmarks/pairwise_gpu.py'
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location('pairwise_gpu', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.torch.cuda, 'get_device_name', lambda: 'X1')
    return module


def test_pairwise_gpu_on_the_cpu():
    options = (
        '--anchors 300 --classes 10 --positives 120 --repeats 1 '
        '--device cpu --method intervals --kinds trained --dtypes float32'
    )
    done = run_script(
        ROOT / 'tools/benchmarks/pairwise_gpu.py',
        *options.split(),
        cwd=ROOT,
        env=dict(COLUMNS='160'),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(r'│ (copy|pairwise|focal)[^│]*│ +([\d.]+)', done.stdout)
    assert [name for name, _ in rows] == ['copy', 'pairwise', 'focal']
    assert all(float(took) > 0 for _, took in rows)
    # On the CPU, the torch path is compared with itself.
    assert 'relative to the torch path 0.0e+00' in done.stdout


def test_all_refuses_without_a_gpu(tool, monkeypatch, capsys):
    monkeypatch.delenv('TRITON_INTERPRET', raising=False)
    monkeypatch.setattr(tool, 'HAS_TRITON', True)
    monkeypatch.setattr(sys, 'argv', ['pairwise_gpu.py', '--all', '--device', 'cpu'])
    assert tool.main() == 2
    error = capsys.readouterr().err
    assert 'run this on a machine with an NVIDIA GPU' in error
    monkeypatch.setattr(tool, 'HAS_TRITON', False)
    assert tool.main() == 2
    assert 'pip install triton' in capsys.readouterr().err


def test_all_refuses_a_gpu_that_triton_does_not_compile_for(tool, monkeypatch, capsys):
    monkeypatch.setattr(tool, 'HAS_TRITON', True)
    monkeypatch.setattr(tool.torch.cuda, 'current_device', lambda: 0)
    monkeypatch.setattr(tool, 'is_supported', lambda index: False)
    monkeypatch.setattr(sys, 'argv', ['pairwise_gpu.py', '--all', '--device', 'cuda'])
    assert tool.main() == 2
    assert 'capability 8.0' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('device', 'found', 'status', 'last'),
    [
        ('cuda', 1e-8, 0, 'kernels verified on X1; MMRANK_TRITON=1'),
        ('cuda', 1e-3, 1, '1 checks failed: large'),
        ('cuda', float('nan'), 1, '1 checks failed: large'),
        ('cpu', 1e-8, 0, "kernels agree in triton's interpreter, on no"),
    ],
)
def test_one_failed_check_decides(tool, monkeypatch, capsys, device, found, status, last):
    small = CheckResult('small', 0, 0)
    large = CheckResult('large', found, 1e-6)
    monkeypatch.setattr(tool, 'all_checks', lambda *args: iter([small]))
    monkeypatch.setattr(tool, 'print_times', lambda *args: iter([large]))
    args = SimpleNamespace(device=device, positives=9, check_negatives=100)
    assert tool.verify(args, Console(width=160)) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'ok small: 0 (at most 0)'
    assert lines[1].startswith('ok' if status == 0 else 'FAILED')
    assert lines[-1].startswith(last)


def test_candidates_keep_the_sums_within_their_words():
    """The best so far comes first: the rest is timed beside it."""
    best = size_tuning.LaunchSizes(block=2048, tiles=64)
    for stage in range(len(size_tuning.STAGES)):
        tried = size_tuning.candidates(stage, best)
        assert tried[0] == best
        assert len(tried) == len(set(tried)) > 8
        assert all(x.block * x.tiles <= 2**18 for x in tried)
    crowded = best._replace(block=2**13)
    tried = size_tuning.candidates(1, crowded)
    assert {x.tiles for x in tried[1:]} == {4, 8, 16, 32}


def test_kernel_report_of_launches():
    pytest.importorskip('triton')
    done = run_script(
        ROOT / 'tools/benchmarks/kernel_report.py',
        *('--parts', 'launches', '--scores', '100000'),
        cwd=ROOT,
        env=dict(COLUMNS='160'),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'gradient_kernel: (196,) programs' in done.stdout
    assert '7 launches of triton and 1 that clears the sums' in done.stdout


@pytest.mark.slow
def test_kernel_report_of_resources_and_traffic(tmp_path):
    pytest.importorskip('triton')
    done = run_script(
        ROOT / 'tools/benchmarks/kernel_report.py',
        *('--parts', 'resources', 'traffic', '--dtypes', 'fp32'),
        *('--architectures', '90', '--positives', '30'),
        cwd=ROOT,
        env=dict(COLUMNS='160', TRITON_CACHE_DIR=str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(r'_kernel +│ +\d+ registers, 0 B spilled', done.stdout)
    assert len(rows) == 7
    row = re.search(r'fp32 +│ 12 +│ 12.00 +│ 0.\d+ +│ (1.0\d+)', done.stdout)
    assert 1 < float(row.group(1)) < 1.33


@pytest.mark.slow
def test_all_in_the_interpreter():
    pytest.importorskip('triton')
    options = (
        '--all --device cpu --positives 20 --check-negatives 300 --anchors 30 --classes 10 '
        '--repeats 1 --kinds trained --dtypes float32'
    )
    # The interpreter is chosen when triton is imported.
    done = subprocess.run(
        [sys.executable, ROOT / 'tools/benchmarks/pairwise_gpu.py', *options.split()],
        cwd=ROOT,
        env=dict(os.environ, COLUMNS='160', TRITON_INTERPRET='1'),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count('\nok ') + done.stdout.startswith('ok ') == 16
    assert 'FAILED' not in done.stdout
    assert "agree in triton's interpreter, on no device" in done.stdout
    assert 'verified on' not in done.stdout
