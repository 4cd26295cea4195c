"""A small model with three losses in the loop of each engine: the matrix of docs/pages/trainers.md.

``WRITE_TRAINERS=1`` writes the rows of the engines that are installed into the page.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / 'tests/cases/trainings/engine_loops.py'
PAGE = ROOT / 'docs/pages/trainers.md'
#: What a row of the page begins with, and the package of the engine.
ENGINES = {
    'torchrun': ('torchrun, DistributedDataParallel', 'torch'),
    'fsdp2': ('torchrun, `fully_shard`', 'torch'),
    'hsdp': ('torchrun, `fully_shard` on 2 x 2 processes, resumed on 2 x 1', 'torch'),
    'mmengine': ('mmengine', 'onedl-mmengine'),
    'lightning': ('Lightning, DDP', 'lightning'),
    'lightning_fsdp2': ('Lightning, `ModelParallelStrategy` (FSDP2)', 'lightning'),
    'fabric': ('Fabric, DDP', 'lightning'),
    'accelerate': ('accelerate, DDP', 'accelerate'),
    'accelerate_fsdp2': ('accelerate, `fsdp_version=2`', 'accelerate'),
    'transformers': ('Hugging Face Trainer, DDP', 'transformers'),
    'sentence_transformers': ('`SentenceTransformerTrainer`, DDP', 'sentence-transformers'),
    'ray': ('Ray Train, DDP', 'ray'),
}


def equal(states, one, other):
    """Whether two trainings end with the same bits."""
    return all(torch.equal(states[one][key], value) for key, value in states[other].items())


def close(states, one, other):
    """Whether they end with the same numbers, but for the order of sums."""
    torch.testing.assert_close(states[one], states[other], rtol=1e-5, atol=1e-5)
    return True


@pytest.mark.processes
@pytest.mark.parametrize(
    'engine', [pytest.param(x, marks=() if x == 'torchrun' else pytest.mark.slow) for x in ENGINES]
)
def test_an_engine_trains_resumes_and_restarts(engine, tmp_path):
    title, package = ENGINES[engine]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f'{package} is not installed')
    # Else gloo of torch 2.12 meets addresses of the first life in most restarts.
    env = {**os.environ, 'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': '1', 'PYTHONPATH': str(ROOT)}
    env |= {'OMP_NUM_THREADS': '1'}
    command = [sys.executable, SCRIPT, engine, tmp_path]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    states = {x.parent.name: torch.load(x) for x in tmp_path.glob('*/6.pt')}
    # The trainer of sentence-transformers has a model of its own.
    assert engine == 'sentence_transformers' or close(states, 'one', 'plain')
    assert equal(states, 'resumed', 'one')
    assert close(states, 'many', 'one')
    assert equal(states, 'killed', 'many')
    assert not list(tmp_path.glob('killed/kill_at_*'))
    assert close(states, 'other', 'many')
    row = f'| {title} | {".".join(version.split(".")[:2])} | yes | yes | yes | yes | yes |'
    page = PAGE.read_text('utf-8')
    if os.environ.get('WRITE_TRAINERS'):
        # The first table of the page has titles, too, but no versions.
        page = re.sub(rf'^\| {re.escape(title)} \| \d.*$', row, page, flags=re.MULTILINE)
        PAGE.write_text(page, 'utf-8')
    assert row in page, f'the page lacks {row}'
