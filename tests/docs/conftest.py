"""mmrank as a newcomer has it: a wheel, and an empty folder."""

import pytest
from built_package import install
from docs_blocks import PAGES, ROOT, blocks, output_of

#: A newcomer's commands of one page take at most 3 minutes on 2 cores.
SECONDS_OF_ALL_CORES = 2 * 180


@pytest.fixture(scope='session')
def installed(tmp_path_factory):
    """Folder with the installed wheel."""
    return install(tmp_path_factory.mktemp('wheel'))


@pytest.fixture
def newcomer(installed, tmp_path):
    """Runs commands in an empty folder that `Get started` has prepared."""
    prepare = blocks(PAGES / 'get_started.md', '{.bash .from-a-wheel}')

    def run(commands):
        check = ['python -c "import mmrank; print(mmrank.__file__)"']
        place = output_of([*prepare, *check], tmp_path, installed).strip()
        assert place == str(installed / 'mmrank' / '__init__.py')
        return output_of(commands, tmp_path, installed, SECONDS_OF_ALL_CORES)

    run.folder = tmp_path
    return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of a reader who has a checkout."""
    for name in ('configs', 'tools'):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
