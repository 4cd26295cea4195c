"""One model with three losses in the loop of each engine: the matrix of docs/pages/trainers.md."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / 'tests/helpers/engine_loops.py'
PAGE = ROOT / 'docs/pages/trainers.md'
STEPS = 6
#: What a row of the page begins with, and the package of the engine.
ENGINES = {
    'torchrun': ('torchrun, DistributedDataParallel', 'torch'),
    'mmengine': ('mmengine', 'onedl-mmengine'),
    'lightning': ('Lightning, DDP', 'lightning'),
    'fabric': ('Fabric, DDP', 'lightning'),
    'accelerate': ('accelerate, DDP', 'accelerate'),
    'transformers': ('Hugging Face Trainer, DDP', 'transformers'),
}

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def train(engine, folder, steps=STEPS, processes=1, kill_at=-1):
    """All parameters and buffers after a training; it goes on with what the folder has."""
    folder.mkdir(exist_ok=True)
    launch = []
    if processes > 1:
        launch = ['-m', 'torch.distributed.run', '--standalone', f'--nproc-per-node={processes}']
        launch += [f'--max-restarts={int(kill_at >= 0)}']
    command = [sys.executable, *launch, SCRIPT, engine, folder, str(steps)]
    # Else gloo of torch 2.12 meets addresses of the first life in most restarts.
    env = {**os.environ, 'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': '1', 'PYTHONPATH': str(ROOT)}
    env |= {'OMP_NUM_THREADS': '1', 'KILL_AT': str(kill_at)}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / f'{steps}.pt')


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """What a plain loop ends with."""
    return train('torchrun', tmp_path_factory.mktemp('plain') / 'one')


@pytest.mark.parametrize('engine', ENGINES)
def test_an_engine_trains_resumes_and_restarts(engine, plain, tmp_path):
    title, package = ENGINES[engine]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f'{package} is not installed')

    def close(found, expected):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)

    one = train(engine, tmp_path / 'one')
    close(one, plain)
    train(engine, tmp_path / 'resumed', steps=3)
    resumed = train(engine, tmp_path / 'resumed')
    assert all(torch.equal(resumed[key], value) for key, value in one.items())
    two = train(engine, tmp_path / 'two', processes=2)
    close(two, one)
    killed = train(engine, tmp_path / 'killed', processes=2, kill_at=4)
    assert all(torch.equal(killed[key], value) for key, value in two.items())
    train(engine, tmp_path / 'three', steps=3, processes=2)
    close(train(engine, tmp_path / 'three', processes=3), one)
    row = f'| {title} | {".".join(version.split(".")[:2])} | yes | yes | yes | yes | yes |'
    assert row in PAGE.read_text('utf-8'), f'the page lacks {row}'
