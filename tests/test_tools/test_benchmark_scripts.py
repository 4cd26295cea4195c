"""The benchmark scripts run and say what their help promises."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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
        *(*configs, '--batch-size', '8', '--repeats', '3'),
        *('--image-size', size, size, '--threads', '1'),
    )
    rows = [[float(x) for x in row] for row in re.findall(PARTS, out)]
    assert len(rows) == 2
    for network, loss, backward, optimiser, total, share, _ in rows:
        assert min(network, loss, backward) > 0
        assert total == pytest.approx(network + loss + backward + optimiser, abs=0.21)
        assert share == pytest.approx(100 * loss / total, abs=3)
    assert rows[0][-1] == 1
