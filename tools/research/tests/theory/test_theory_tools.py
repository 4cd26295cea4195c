"""The theory tools write what their help promises."""

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2]
# As the defaults, but of a size for a test.
SMALL = {
    'soprc_simulation': dict(
        RATES=(0.02, 0.5), SIZE=60, SIZES=(20, 60), NUMS_SCORES=(20, 30), MOMENTA=(0.5,)
    ),
    'stable_ap_bounds': dict(
        RHOS=(1.0, 2.0), NUMS_POS=(2, 4), NUMS_WEIGHTS=(2, 4), NUMS_SAMPLES=(4, 8), STEPS=20
    ),
}
FILES = {
    'soprc_simulation': (['sampling_rate_bias', 'interpolation_error', 'score_vector'], []),
    'stable_ap_bounds': (
        ['theorem1', 'bounded_difference', 'mean_score_tracking'],
        ['theorem1_weights'],
    ),
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize('name', FILES)
def test_tool_writes_figures_and_tables(name, tmp_path, monkeypatch):
    tool = load(name)
    for constant, value in SMALL[name].items():
        assert hasattr(tool, constant)
        monkeypatch.setattr(tool, constant, value)
    arguments = ['--trials', '3', '--out-dir', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', [name, *arguments])
    assert not tool.main()
    figures, tables = FILES[name]
    pictures = ['densities'] if name == 'soprc_simulation' else []
    for file in figures + pictures:
        size = (tmp_path / f'{file}.png').stat().st_size
        assert 5_000 < size < 150_000
    for file in figures + tables:
        lines = (tmp_path / f'{file}.md').read_text('utf-8').splitlines()
        text = (tmp_path / f'{file}.csv').read_text('utf-8')
        rows = list(csv.DictReader(text.splitlines()))
        borders = [x.replace('\\|', '').count('|') for x in lines if x[:2] == '| ']
        assert borders == [len(rows[0]) + 1] * (len(rows) + 1)
        for row in rows:
            assert 'nan' not in row.values()


def test_bounds_tool_fails_where_a_bound_does_not_hold(tmp_path, monkeypatch):
    tool = load('stable_ap_bounds')
    for constant, value in SMALL['stable_ap_bounds'].items():
        monkeypatch.setattr(tool, constant, value)
    monkeypatch.setattr(tool, 'bounded_difference', lambda *_: (tmp_path, 1.01))
    arguments = ['--trials', '2', '--out-dir', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['tool', *arguments])
    assert tool.main() == 1


@pytest.mark.parametrize(
    ('name', 'arguments', 'message'),
    [
        ('soprc_simulation', ['--trials', '1'], '--trials must be at least 2'),
        ('soprc_simulation', ['--prior', '1'], '--prior must be in (0, 1)'),
        ('stable_ap_bounds', ['--trials', '0'], '--trials must be at least 2'),
    ],
)
def test_bad_arguments_are_named(name, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [name, *arguments])
    with pytest.raises(SystemExit):
        load(name).parse_args()
    assert message in capsys.readouterr().err
