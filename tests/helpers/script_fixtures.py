"""Fixtures that run scripts and tools in this process: importing PyTorch takes seconds."""

import os
import runpy
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from mmrank import interruption

TOOLS = Path(__file__).parents[2] / 'tools'


@pytest.fixture(autouse=True)
def own_environment():
    """Tools that run in this process set torch's reader and ranks for what they start."""
    with patch.dict(os.environ, TORCH_FORCE_WEIGHTS_ONLY_LOAD='0'):
        yield


@contextmanager
def own_loading():
    """Undo in the end that this process loads checkpoints as data only."""
    from mmengine.runner import CheckpointLoader, checkpoint

    from mmrank import checkpoint_loading

    with pytest.MonkeyPatch.context() as own:
        own.setattr(torch, 'load', torch.load)
        own.setattr(checkpoint, 'load_url', checkpoint.load_url)
        own.setattr(CheckpointLoader, 'load_checkpoint', CheckpointLoader.load_checkpoint)
        own.setattr(checkpoint_loading, '_is_trusting', False)
        own.setenv(checkpoint_loading._SWITCH, '0')
        yield


@pytest.fixture
def run_script(monkeypatch, capsys):
    """Runs a script in this process: status, output and errors."""
    from mmengine.logging import MMLogger
    from mmengine.registry import DefaultScope
    from mmengine.visualization import Visualizer

    def run(path, *arguments):
        # A logger of an earlier test writes to that test's output, which is closed by now.
        MMLogger._instance_dict.clear()
        # A run is named by its second: an earlier one of that second would leave its scope here.
        DefaultScope._instance_dict.clear()
        for kind in (Visualizer, *Visualizer.__subclasses__()):
            kind._instance_dict.clear()
        monkeypatch.setattr(sys, 'argv', [str(path), *map(str, arguments)])
        code = 0
        try:
            with own_loading():
                runpy.run_path(str(path), run_name='__main__')
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            interruption.restore_signals()
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def run(run_script, monkeypatch):
    """Runs a tool in this process, of which its status is known; words are split."""
    monkeypatch.setenv('COLUMNS', '160')
    threads = torch.get_num_threads()

    def call(tool, *arguments, status=0):
        path = TOOLS / f'{tool}.py'
        monkeypatch.syspath_prepend(path.parent)
        code, output, errors = run_script(path, *' '.join(map(str, arguments)).split())
        assert code == status, errors
        return output + errors

    yield call
    torch.set_num_threads(threads)


@pytest.fixture(scope='session')
def trained(tmp_path_factory):
    """The folder of a finished training, and its config; for tests that change neither."""
    import resume_run
    from tiny_tool_run import write_config

    folder = tmp_path_factory.mktemp('trained')
    config = write_config(folder)
    resume_run.train(str(folder / 'work'), {}, None, False)
    return folder / 'work', config
