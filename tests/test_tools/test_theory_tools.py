"""The theory tools write what their help promises."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(tool, *arguments):
    return subprocess.run(
        [sys.executable, f'tools/analysis_tools/{tool}.py', *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
    )


def rows_of(path):
    with path.open(newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize(
    ('tool', 'figures', 'tables'),
    [
        (
            'soprc_simulation',
            ['sampling_rate_bias', 'interpolation_error', 'score_vector'],
            [],
        ),
        (
            'stable_ap_bounds',
            ['theorem1', 'bounded_difference', 'mean_score_tracking'],
            ['theorem1_weights'],
        ),
    ],
)
def test_tool_writes_figures_and_tables(tool, figures, tables, tmp_path):
    done = run(tool, '--trials', '2', '--out-dir', str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    for name in figures:
        size = (tmp_path / f'{name}.png').stat().st_size
        assert 5_000 < size < 150_000
    for name in figures + tables:
        lines = (tmp_path / f'{name}.md').read_text('utf-8').splitlines()
        rows = rows_of(tmp_path / f'{name}.csv')
        assert len([x for x in lines if x.startswith('| ')]) == len(rows) + 1


@pytest.mark.parametrize(
    ('tool', 'arguments', 'message'),
    [
        ('soprc_simulation', ['--trials', '1'], '--trials must be at least 2'),
        ('soprc_simulation', ['--prior', '1'], '--prior must be in (0, 1)'),
        ('stable_ap_bounds', ['--trials', '0'], '--trials must be at least 2'),
    ],
)
def test_bad_arguments_are_named(tool, arguments, message):
    done = run(tool, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
