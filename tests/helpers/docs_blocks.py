"""Fenced blocks of this project's documents, and running those of a shell."""

import os
import subprocess
import sys
from pathlib import Path

from documents import blocks_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / 'docs' / 'pages'


def all_blocks(path):
    """Language, or what stands for it, and text of each fenced block."""
    return [(block.opening, block.text) for block in blocks_of(path)]


def blocks(path, kind):
    """Texts of the fenced blocks of a language."""
    return [text for name, text in all_blocks(path) if name == kind]


def block(path, mark):
    """The one Python block that contains ``mark``."""
    (text,) = [text for text in blocks(path, 'python') if mark in text]
    return text


def values_of(text):
    """The names that a Python block defines."""
    names = {}
    exec(text, names)
    return names


def output_of(commands, folder, package=ROOT):
    """What the commands print in a folder.

    ``package`` is the folder that mmrank is imported from.
    """
    environment = dict(
        os.environ,
        PATH=f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        PYTHONPATH=str(package),
        OMP_NUM_THREADS='1',
    )
    done = subprocess.run(
        ['bash', '-euo', 'pipefail', '-c', '\n'.join(commands)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
