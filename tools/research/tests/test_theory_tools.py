"""The theory tools write what their help promises."""

import csv
import sys

import pytest

import soprc_simulation
import stable_ap_bounds

# As the defaults, but of a size for a test.
SMALL = {
    soprc_simulation: dict(
        RATES=(0.02, 0.5), SIZE=60, SIZES=(20, 60), NUMS_SCORES=(20, 30), MOMENTA=(0.5,)
    ),
    stable_ap_bounds: dict(
        RHOS=(1.0, 2.0), NUMS_POS=(2, 4), NUMS_WEIGHTS=(2, 4), NUMS_SAMPLES=(4, 8), STEPS=20
    ),
}
FILES = {
    soprc_simulation: 'sampling_rate_bias interpolation_error score_vector',
    stable_ap_bounds: 'theorem1 theorem1_weights bounded_difference mean_score_tracking',
}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs a tool in small."""

    def start(tool, *arguments):
        for constant, value in SMALL[tool].items():
            monkeypatch.setattr(tool, constant, value)
        monkeypatch.setattr(sys, 'argv', ['tool', '--out-dir', str(tmp_path), *arguments])
        return tool.main()

    return start


@pytest.mark.slow
@pytest.mark.parametrize('tool', FILES, ids=lambda x: x.__name__)
def test_tool_writes_figures_and_tables(tool, tmp_path, start):
    assert not start(tool, '--trials', '3')
    for file in FILES[tool].split():
        rows = list(csv.DictReader((tmp_path / f'{file}.csv').open()))
        assert rows
        assert all('nan' not in row.values() for row in rows)
        if file != 'theorem1_weights':
            assert 5_000 < (tmp_path / f'{file}.png').stat().st_size < 150_000


def test_bounds_tool_fails_where_a_bound_does_not_hold(tmp_path, monkeypatch, start):
    monkeypatch.setattr(stable_ap_bounds, 'bounded_difference', lambda _: (tmp_path, 1.01))
    assert start(stable_ap_bounds, '--trials', '2') == 1
