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
@pytest.mark.parametrize('kind', ['detector', 'retriever', 'plan'])
def test_parts_of_a_training_step(kind, run, monkeypatch):
    monkeypatch.chdir(ROOT)
    pytest.importorskip('mmdet' if kind == 'detector' else 'mmpretrain')
    words = '--batch-size 8 --repeats 3 --threads 1 --image-size 64 64'
    if kind == 'retriever':
        configs = (f'configs/{x}_ap/conv4_{x}-ap_omniglot.py' for x in ('smooth', 'stable'))
        words = ' '.join([*configs, words.replace('64', '28')])
    elif kind == 'plan':
        words = '--plan tools/research/papers/stable_ap/table3.yaml --set small --repeats 2'
    out = run('benchmarks/training_step', words)
    rows = [[float(x) for x in row] for row in re.findall(PARTS, out)]
    assert len(rows) == (5 if kind == 'plan' else 2)
    for network, loss, backward, optimiser, total, share, _ in rows:
        assert min(network, loss, backward) > 0
        assert total == pytest.approx(network + loss + backward + optimiser, abs=0.21)
        assert share == pytest.approx(100 * loss / total, abs=3)
    assert rows[0][-1] == 1
