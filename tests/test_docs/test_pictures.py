"""Every picture has a command, and the runs of a box plot are its table's."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from research.seeds.plots import read_values

ROOT = Path(__file__).resolve().parents[2]
LISTED = re.compile(r'^\| `([^`]+)` \| (.+) \|$', re.MULTILINE)
TABLES = sorted(ROOT.glob('configs/*/resources/*_runs.csv'))


@pytest.fixture(scope='module')
def commands():
    """Commands by picture, as docs/pages/pictures.md has them."""
    text = (ROOT / 'docs/pages/pictures.md').read_text('utf-8')
    return dict(LISTED.findall(text))


def test_every_picture_is_listed(commands):
    done = subprocess.run(
        ['git', 'ls-files', '*.png', '*.jpg', '*.jpeg', '*.svg', '*.gif'],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        pytest.skip('not a git repository')
    assert sorted(commands) == sorted(done.stdout.split())


def test_what_the_commands_name_is_there(commands):
    for text in commands.values():
        for path in re.findall(r'(?:tools|configs)/[\w./-]+', text):
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize('path', TABLES, ids=lambda path: path.stem)
def test_runs_have_the_mean_and_std_of_the_table(path):
    text = (path.parents[1] / 'README.md').read_text('utf-8')
    # The metric has it already.
    percent = path.stem.startswith('grocery') or 'folds' in path.stem
    digits = 1 if 'long_tail' in str(path) and not percent else 2
    scale = 1 if percent else 100
    for name, metrics in read_values(path, scale=scale).items():
        metric, runs = next(iter(metrics.items()))
        values = list(runs.values())
        mean, std = np.mean(values), np.std(values, ddof=1)
        # What was read from a picture may round to the next digit.
        near = {
            f'{mean + i / 10**digits:.{digits}f} ± {std + j / 10**digits:.{digits}f}'
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
        }
        assert any(item in text for item in near), (name, metric, mean, std)
