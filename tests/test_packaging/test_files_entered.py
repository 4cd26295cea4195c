"""A training step of a loss does not spread over more and more files."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / 'files_entered.py'


@pytest.mark.parametrize(
    ('name', 'most'),
    [
        # One more each for the pair matrix, two for sums over both directions, two for keys and
        # state that are spread over the ranks.
        ('StableAPLoss', 13),
        ('APLoss', 14),
        ('SmoothAPLoss', 10),
        ('ISogCLRLoss', 15),
    ],
)
def test_files_entered_by_one_step(name, most):
    spec = importlib.util.spec_from_file_location('files_entered', SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    forward, step = script.calls(name)
    files = script.functions_entered(step)
    assert {*script.functions_entered(forward)} <= {*files}
    assert 1 < len(files) <= most, sorted(map(str, files))
