"""The benchmark scripts run and say what their help promises."""

import re
from pathlib import Path

import pytest
from forked_processes import run_script
from tiny_tool_run import environment, write_config

ROOT = Path(__file__).parents[2]


def run_alone(script, *arguments, status=0):
    """Runs a tool that forks, or measures memory, in a process of its own."""
    done = run_script(
        ROOT / f'tools/benchmarks/{script}.py',
        *' '.join(map(str, arguments)).split(),
        cwd=ROOT,
        env=dict(COLUMNS='160', PYTHONPATH=environment()['PYTHONPATH']),
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.slow
def test_training_step(run, monkeypatch):
    monkeypatch.chdir(ROOT)
    pytest.importorskip('mmdet')
    out = run('benchmarks/training_step', '--batch-size 1 --image-size 64 64 --repeats 1')
    assert re.search(r'focal_bccd.py +│ \d+ +│ 1\.000', out)
    assert re.search(r'stable-ap_bccd.py +│ \d+ +│ \d+\.\d{3}', out)


PARTS = (
    r'(\d+\.\d) +│ (\d+\.\d) +│ (\d+\.\d) +│ (\d+\.\d) +│ (\d+\.\d) +│'
    r' (\d+\.\d) +│ (\d\.\d{3})'
)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['detector', 'retriever'])
def test_parts_of_a_training_step(kind, run, monkeypatch):
    monkeypatch.chdir(ROOT)
    pytest.importorskip('mmdet' if kind == 'detector' else 'mmpretrain')
    configs, size = [], '64'
    if kind == 'retriever':
        size = '28'
        configs = [
            'configs/smooth_ap/conv4_smooth-ap_omniglot.py',
            'configs/stable_ap/conv4_stable-ap_omniglot.py',
        ]
    out = run(
        'benchmarks/training_step',
        *(*configs, '--parts', '--batch-size', '8', '--repeats', '3'),
        *('--image-size', size, size, '--threads', '1'),
    )
    rows = [[float(x) for x in row] for row in re.findall(PARTS, out)]
    assert len(rows) == 2
    for network, loss, backward, optimiser, total, share, _ in rows:
        assert min(network, loss, backward) > 0
        assert total == pytest.approx(network + loss + backward + optimiser, abs=0.21)
        assert share == pytest.approx(100 * loss / total, abs=3)
    assert rows[0][-1] == 1


@pytest.mark.slow
def test_detr_step(run):
    pytest.importorskip('mmdet')
    out = run(
        'benchmarks/detr_step',
        '--queries 20 --classes 5 --denoising 10',
        '--batch-size 1 --image-size 64 64 --boxes 2',
        '--repeats 1 --loss-repeats 1',
    )
    for part in ('loss', 'step', 'exchanged'):
        row = re.search(rf'│ 20 +│ 5 +│ {part} +│(.*)│', out).group(1)
        focal, ours, ratio = (float(x) for x in row.split('│'))
        assert min(focal, ours, ratio) > 0


@pytest.mark.slow
def test_grad_cache_step(run):
    out = run('benchmarks/grad_cache_step', '--batches 4 32 --chunk 4 --repeats 1')
    rows = re.findall(r'│ (4|32) +│(.*)│', out)
    whole, chunks = zip(*(map(float, x.split('│')[:2]) for _, x in rows))
    # Most of a small batch is the weights' gradients.
    assert whole[1] > 1.25 * whole[0]
    assert chunks[1] < 1.2 * chunks[0]


@pytest.mark.slow
def test_wire_bytes():
    out = run_alone('wire_bytes', '--logits 2000 --positives 40 --classes 4')
    # Both ranks' positives, 4 + 1 bytes each, sums of 2 x 8 bytes for each
    # and 8 bytes each for the width and the number of negatives.
    row = re.search(r'StableAPLoss │ flatten +│(.*)│', out).group(1)
    calls, gathered, reduced, *_ = (x.strip() for x in row.split('│'))
    assert calls == '5'
    assert gathered == f'{40 * 5 / 1024:,.1f}'
    assert reduced == f'{(80 * 16 + 16) / 1024:,.1f}'


def numbers(out, name):
    """Cells of a row."""
    row = re.search(rf'│ {re.escape(name)} +│(.*)│', out).group(1)
    return [float(x) for x in row.split('│')]


def test_check_is_compared_with_reading():
    out = run_alone('cold_paths', 'check', '--images', 300, '--repeats', 2)
    seconds, ratio = numbers(out, 'json.load')
    assert seconds > 0
    assert ratio == 1
    assert min(numbers(out, 'check')) > 0
    out = run_alone('cold_paths', 'check', '--images', 0, status=2)
    assert '--images must be at least 1, got 0' in out


@pytest.mark.slow
def test_imports_and_start_of_a_training(tmp_path):
    out = run_alone('cold_paths', 'imports', '--repeats', 1)
    above = {
        name: numbers(out, f'import {name}')[0]
        for name in ('mmrank', 'mmrank.functional', 'mmrank.losses')
    }
    assert above['mmrank'] < above['mmrank.functional'] < 1000
    assert above['mmrank.functional'] < above['mmrank.losses'] < 3000
    out = run_alone('cold_paths', 'train', write_config(tmp_path), '--repeats', 1)
    stages = (
        *('import torch', 'imports of train.py'),
        *('config, and the packages it names', 'check of the data'),
        *('runner', 'up to the first iteration'),
    )
    parts = [numbers(out, name)[0] for name in stages]
    assert sum(parts) == pytest.approx(numbers(out, 'in all')[0], rel=0.05)
    out = run_alone('cold_paths', 'train', 'nothing.py', status=2)
    assert 'has failed' in out


@pytest.mark.slow
def test_table_is_compared_with_its_evaluator():
    pytest.importorskip('mmdet')
    out = run_alone('cold_paths', 'table', '--images', 20)
    assert numbers(out, 'coco_table.py')[1] > 1
