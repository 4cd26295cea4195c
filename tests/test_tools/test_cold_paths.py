"""What is waited for before a computation starts is timed."""

import re
from pathlib import Path

import pytest
from forked_processes import run_script
from tiny_tool_run import write_config

ROOT = Path(__file__).parents[2]


def run(*words, status=0):
    done = run_script(
        ROOT / 'tools/benchmarks/cold_paths.py',
        *map(str, words),
        cwd=ROOT,
        env=dict(COLUMNS='120', PYTHONPATH=f'{ROOT}:{ROOT}/tests/cases/trainings'),
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done.stdout + done.stderr


def numbers(out, name):
    """Cells of a row."""
    row = re.search(rf'│ {re.escape(name)} +│(.*)│', out).group(1)
    return [float(x) for x in row.split('│')]


def test_check_beside_reading():
    out = run('check', '--images', 300, '--repeats', 2)
    seconds, ratio = numbers(out, 'json.load')
    assert seconds > 0
    assert ratio == 1
    assert min(numbers(out, 'check')) > 0
    out = run('check', '--images', 0, status=2)
    assert '--images must be >= 1, got 0' in out


@pytest.mark.slow
def test_imports_and_start_of_a_training(tmp_path):
    out = run('imports', '--repeats', 1)
    above = {
        name: numbers(out, f'import {name}')[0]
        for name in ('mmrank', 'mmrank.functional', 'mmrank.losses')
    }
    assert above['mmrank'] < above['mmrank.functional'] < 1000
    assert above['mmrank.functional'] < above['mmrank.losses'] < 3000
    out = run('train', write_config(tmp_path), '--repeats', 1)
    stages = (
        *('import torch', 'imports of train.py'),
        *('config, and the packages it names', 'check of the data'),
        *('runner', 'up to the first iteration'),
    )
    parts = [numbers(out, name)[0] for name in stages]
    assert sum(parts) == pytest.approx(numbers(out, 'in all')[0], rel=0.05)
    out = run('train', 'nothing.py', status=2)
    assert 'has failed' in out


@pytest.mark.slow
def test_table_beside_its_evaluator():
    pytest.importorskip('mmdet')
    out = run('table', '--images', 20)
    assert numbers(out, 'coco_table.py')[1] > 1
