"""The tiny training of ``resume_run`` as a config file, for the tools."""

import os
import subprocess
import sys
from pathlib import Path

import resume_run

ROOT = Path(__file__).resolve().parents[3]
TRAIN, TEST = ROOT / 'tools' / 'train.py', ROOT / 'tools' / 'test.py'


def write_config(folder: Path, **options) -> Path:
    """Write ``<folder>/tiny.py``, which trains into ``<folder>/work``; returns its path."""
    config = resume_run.make_config(str(folder / 'work'), **options)
    config.custom_imports = dict(imports=['resume_run'])
    config.test_dataloader = config.val_dataloader
    config.test_evaluator = config.val_evaluator
    config.test_cfg = {}
    path = folder / 'tiny.py'
    config.dump(path)
    return path


def environment() -> dict[str, str]:
    """Variables with which a tool finds this checkout and these trainings."""
    folders = ROOT, Path(__file__).parent, ROOT / 'tests' / 'helpers'
    path = os.pathsep.join(map(str, folders))
    return {**os.environ, 'PYTHONPATH': path, 'OMP_NUM_THREADS': '1'}


def start_python(*words) -> subprocess.Popen:
    """Start an interpreter with some words, its output in one pipe."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
