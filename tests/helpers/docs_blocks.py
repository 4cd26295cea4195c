"""Fenced blocks of this project's documents, and running those of a shell."""

import math
from pathlib import Path

import run_pages
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


def output_of(commands, folder, package=ROOT, seconds=math.inf):
    """What the commands print in a folder, in at most so many seconds of all cores.

    ``package`` is the folder that mmrank is imported from.
    """
    bash = ['env', f'PYTHONPATH={package}', 'bash', '-euo', 'pipefail', '-c', '\n'.join(commands)]
    status, _, used, said = run_pages.run(bash, folder)
    assert status == 0, said[-3000:]
    assert used < seconds, f'{used:.0f} s of CPU time'
    return said
