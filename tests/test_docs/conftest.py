"""mmrank as a newcomer has it: a wheel, and an empty folder."""

import resource
import subprocess
import sys

import pytest
from built_package import build, copy_checkout
from docs_blocks import PAGES, ROOT, blocks, output_of

#: A newcomer's commands of one page take at most 3 minutes on 2 cores.
SECONDS_OF_ALL_CORES = 2 * 180


@pytest.fixture(scope='session')
def installed(tmp_path_factory):
    """Folder with the installed wheel; what it needs is in the environment."""
    place = tmp_path_factory.mktemp('wheel')
    checkout = copy_checkout(tmp_path_factory.mktemp('checkout'))
    wheel = build(checkout, 'build_wheel', place / 'built')
    pip = [sys.executable, '-m', 'pip', 'install', '--no-deps', '--no-index']
    target = ['--quiet', '--target', str(place / 'installed'), str(wheel)]
    subprocess.run([*pip, *target], check=True)
    return place / 'installed'


@pytest.fixture
def newcomer(installed, tmp_path):
    """Runs commands in an empty folder that `Get started` has prepared."""
    prepare = blocks(PAGES / 'get_started.md', '{.bash .from-a-wheel}')

    def run(commands):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        check = ['python -c "import mmrank; print(mmrank.__file__)"']
        place = output_of([*prepare, *check], tmp_path, installed).strip()
        assert place == str(installed / 'mmrank' / '__init__.py')
        output = output_of(commands, tmp_path, installed)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = sum(after[:2]) - sum(before[:2])
        print(f'{used:.0f} s of CPU time')
        assert used < SECONDS_OF_ALL_CORES, f'{used:.0f} s of CPU time'
        return output

    run.folder = tmp_path
    return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of a reader who has a checkout."""
    for name in ('configs', 'tools'):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
