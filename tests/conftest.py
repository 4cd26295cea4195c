"""Settings of all tests."""

import functools
import gc
import importlib.util
import os
import runpy
import sys
from contextlib import contextmanager
from unittest.mock import patch

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


def pytest_collection_finish():
    """Data sets of mmengine collect garbage when built, a second where much is imported."""
    gc.freeze()
    for device in (torch.cuda, torch.xpu):
        if not device.is_available():  # seeds would wait for one, each with a stack trace
            device.manual_seed_all = lambda seed: None
    if not importlib.util.find_spec('mmengine'):
        return
    # Each runner lays out its config three times, and reads what configs a package has.
    from mmengine.config import utils
    from yapf.yapflib import yapf_api

    utils.load = functools.cache(utils.load)
    lay_out, known = yapf_api.FormatCode, {}

    def look_up(text, **style):
        known[text] = known.get(text) or lay_out(text, **style)
        return known[text]

    yapf_api.FormatCode = look_up


@pytest.fixture(autouse=True)
def _own_environment():
    """Tools that run in this process set torch's reader and ranks for what they start."""
    with patch.dict(os.environ, TORCH_FORCE_WEIGHTS_ONLY_LOAD='0'):
        yield


@contextmanager
def own_loading():
    """Undo in the end that this process loads checkpoints as data only."""
    from mmengine.runner import CheckpointLoader

    from mmrank import checkpoint_loading

    with pytest.MonkeyPatch.context() as own:
        own.setattr(CheckpointLoader, '_schemes', dict(CheckpointLoader._schemes))
        own.setattr(checkpoint_loading, '_is_trusting', False)
        own.setenv(checkpoint_loading._SWITCH, '0')
        yield


@pytest.fixture
def loads_as_data():
    """Let this process load checkpoints as data only, for one test."""
    with own_loading():
        from mmrank.checkpoint_loading import guard_checkpoints

        guard_checkpoints()
        yield


@pytest.fixture
def run_script(monkeypatch, capsys):
    """Runs a script in this process: status, output and errors."""
    from mmengine.logging import MMLogger
    from mmengine.registry import DefaultScope

    def run(path, *arguments):
        # A logger of an earlier test writes to that test's output, which is closed by now.
        MMLogger._instance_dict.clear()
        # A run is named by its second: an earlier one of that second would leave its own scope.
        DefaultScope._instance_dict.clear()
        monkeypatch.setattr(sys, 'argv', [str(path), *map(str, arguments)])
        try:
            with own_loading(), pytest.raises(SystemExit) as caught:
                runpy.run_path(str(path), run_name='__main__')
        finally:
            interruption.restore_signals()
        return caught.value.code, *capsys.readouterr()

    return run
