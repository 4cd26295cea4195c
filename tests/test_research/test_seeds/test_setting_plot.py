"""A metric over a setting: reading runs.csv, drawing, the command."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from research.seeds.plots import plot_setting, read_setting_runs

TOOL = Path(__file__).parents[3] / 'tools/analysis_tools/plot_setting.py'
RUNS = """stage,method,choice,seed,metric,value
tune,soprc-0.1,lr=1,100,AP,99
final,soprc-0.1,,0,AP,50.5
final,soprc-0.1,,1,AP,51.5
final,soprc-0.1,,1,AUROC,80
final,soprc-0.25,,0,AP,52
final,smooth_ap-0.1,,0,AP,40
"""


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / 'runs.csv'
    path.write_text(RUNS)
    return path


def test_runs_by_method_and_setting(runs):
    assert read_setting_runs(runs, 'AP') == {
        'soprc': {0.1: [50.5, 51.5], 0.25: [52]},
        'smooth_ap': {0.1: [40]},
    }


def test_wrong_files(runs):
    with pytest.raises(ValueError, match='no final run with mAP'):
        read_setting_runs(runs, 'mAP')
    runs.write_text(RUNS.replace('soprc-0.25', 'soprc'))
    with pytest.raises(ValueError, match="'soprc' must be named"):
        read_setting_runs(runs, 'AP')


def test_the_lines_are_drawn(runs, tmp_path):
    found = read_setting_runs(runs, 'AP')
    drawn = [
        np.asarray(
            Image.open(plot_setting(some, tmp_path / 'x.png', setting='rate', metric='AP')).convert(
                'L'
            )
        )
        for some in (found, {'soprc': found['soprc']})
    ]
    assert (drawn[0] != drawn[1]).any()
    assert all(x.std() > 5 for x in drawn)


def test_command(runs, tmp_path, run_script):
    command = TOOL, runs, '--metric'
    out = tmp_path / 'y.png'
    status, _, errors = run_script(*command, 'AP', '--mark', 0.14, '--out', out)
    assert status == 0, errors
    assert out.is_file()
    status, _, errors = run_script(*command, 'x')
    assert status == 2
    assert 'no final run' in errors
