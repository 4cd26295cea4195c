"""What tests of several tools share."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a tool in this process, as importing PyTorch takes seconds; words are split."""
    monkeypatch.setenv('COLUMNS', '160')
    threads = torch.get_num_threads()

    def call(tool, *arguments, status=0):
        path = ROOT / 'tools' / f'{tool}.py'
        monkeypatch.syspath_prepend(path.parent)
        monkeypatch.setattr(sys, 'argv', [str(path), *' '.join(map(str, arguments)).split()])
        try:
            code = runpy.run_path(str(path), run_name='tool')['main']() or 0
        except SystemExit as stop:
            code = stop.code
        texts = capsys.readouterr()
        assert code == status, texts.err
        return texts.out + texts.err

    yield call
    torch.set_num_threads(threads)
