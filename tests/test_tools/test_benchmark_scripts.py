"""The benchmark scripts run and say what their help promises."""

import re
from pathlib import Path

import pytest
from forked_processes import run_script
from tiny_tool_run import environment

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
def test_wire_bytes():
    out = run_alone('wire_bytes', '--logits 2000 --positives 40 --classes 4')
    # Both ranks' positives, 4 + 1 bytes each, sums of 2 x 8 bytes for each
    # and 8 bytes each for the width and the number of negatives.
    row = re.search(r'StableAPLoss │ flatten +│(.*)│', out).group(1)
    calls, gathered, reduced, *_ = (x.strip() for x in row.split('│'))
    assert calls == '5'
    assert gathered == f'{40 * 5 / 1024:,.1f}'
    assert reduced == f'{(80 * 16 + 16) / 1024:,.1f}'
