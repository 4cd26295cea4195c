"""The package as pip builds it, from the tracked files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def copy_checkout(target):
    """Copy the tracked files: a build leaves traces beside setup.py."""
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True)
    if listed.returncode != 0:
        pytest.skip('needs a git checkout')
    for name in filter(None, listed.stdout.decode().split('\0')):
        source = ROOT / name
        if source.is_file() and not name.startswith('docs/'):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read_bytes())
    return target


def build(checkout, hook, out):
    """Call one PEP 517 or 660 hook of the build backend, as pip does."""
    code = f'import sys; from setuptools import build_meta; print(build_meta.{hook}(sys.argv[1]))'
    out.mkdir()
    done = subprocess.run(
        [sys.executable, '-c', code, str(out)], cwd=checkout, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.strip().splitlines()[-1]


def install(folder):
    """Install the wheel alone into a folder below this one; what it needs is in the environment."""
    wheel = build(copy_checkout(folder / 'checkout'), 'build_wheel', folder / 'built')
    place = folder / 'installed'
    options = ['--no-deps', '--no-index', '--quiet', '--target', str(place)]
    subprocess.run([sys.executable, '-m', 'pip', 'install', *options, str(wheel)], check=True)
    return place
