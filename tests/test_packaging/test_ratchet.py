"""The project does not grow: each figure of tests/ratchet.py is at most its limit."""

import shutil
import sys
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).resolve().parents[1]
LIMITS = yaml.safe_load((TESTS / 'ratchet.yaml').read_text('utf-8'))
FIX = 'Fix: make it smaller, or raise the limit in tests/ratchet.yaml and say what the lines buy'


@pytest.fixture(scope='module')
def ratchet():
    sys.path.insert(0, str(TESTS))
    try:
        import ratchet
    finally:
        sys.path.remove(str(TESTS))
    return ratchet


def test_sizes(ratchet):
    if shutil.which('git') is None or not (TESTS.parent / '.git').exists():
        pytest.skip('needs a git checkout')
    check(ratchet.sizes())


def test_a_step_enters_few_files(ratchet):
    check(ratchet.reading())


def test_options(ratchet):
    check(ratchet.options())


def test_configs_have_results(ratchet):
    check(ratchet.configs())


def check(figures):
    assert {*figures} <= {*LIMITS}, f'no limit. {FIX}'
    grown = {name: (value, LIMITS[name]) for name, value in figures.items() if value > LIMITS[name]}
    assert not grown, f'{grown} (figure, limit). {FIX}'
