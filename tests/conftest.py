"""Settings of all tests."""

import os
import runpy
import sys

import pytest
import torch
from hypothesis import settings

from mmrank import interruption

# A red CI must mean a change for the worse, not a lucky find; new examples are looked for on
# developers' machines.
settings.register_profile('quick', max_examples=50, deadline=None)
settings.register_profile('thorough', max_examples=300, deadline=None)
settings.register_profile('ci', settings.get_profile('quick'), derandomize=True)
settings.load_profile('ci' if os.environ.get('CI') else 'quick')


@pytest.fixture
def run_script(monkeypatch, capsys):
    """Runs a script in this process: status, output and errors."""

    def run(path, *arguments):
        monkeypatch.setattr(sys, 'argv', [str(path), *map(str, arguments)])
        # A tool lets its process load checkpoints as data only.
        monkeypatch.setattr(torch, 'load', torch.load)
        try:
            with pytest.raises(SystemExit) as caught:
                runpy.run_path(str(path), run_name='__main__')
        finally:
            interruption.restore_signals()
        return caught.value.code, *capsys.readouterr()

    return run
