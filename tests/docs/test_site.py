"""The built site: no warning, API reference, tables of results."""

import importlib
import re
import subprocess
import sys
import zlib

import pytest
from docs_blocks import ROOT

from mmrank import registry

# CI builds the site for each change.
pytestmark = pytest.mark.slow
CONFIG = ROOT / 'docs' / 'mkdocs.yml'


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    """The site; links and anchors that lead nowhere fail a strict build."""
    pytest.importorskip('mkdocs')
    pytest.importorskip('mkdocstrings')
    pytest.importorskip('material')
    target = tmp_path_factory.mktemp('site')
    build = [sys.executable, '-m', 'mkdocs', 'build', '--quiet', '--strict']
    done = subprocess.run(
        [*build, '--config-file', str(CONFIG), '--site-dir', str(target)],
        env={'PATH': '', 'NO_MKDOCS_2_WARNING': '1', 'HOME': str(target)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert 'WARNING' not in done.stderr, done.stderr[-3000:]
    return target


def documented(site):
    """Full names of all that the API pages describe."""
    inventory = (site / 'objects.inv').read_bytes().split(b'\n', 4)[4]
    lines = zlib.decompress(inventory).decode().splitlines()
    return {line.split(' ')[0] for line in lines}


def public_names():
    """Names that a user may import or name in a config."""
    for path in sorted((ROOT / 'mmrank').rglob('__init__.py')):
        package = path.parent.relative_to(ROOT).as_posix().replace('/', '.')
        names = getattr(importlib.import_module(package), '__all__', ())
        yield from (name for name in names if not name.startswith('_'))
    for node in registry.__all__:
        children = getattr(registry, node)
        children.import_from_location()
        for name, made in children.module_dict.items():
            # Other tests of this process register heads of their own.
            if made.__module__.startswith('mmrank.'):
                yield name


def test_api_reference_is_complete(site):
    known = {name.rpartition('.')[2] for name in documented(site)}
    names = {*public_names()}
    assert len(names) > 200
    missing = names - known - {*registry.__all__}
    assert not missing, f'add them to docs/pages/api: {missing}'


def test_pages_are_rendered_whole(site):
    pages = {
        path.relative_to(site).as_posix(): path.read_text('utf-8')
        for path in site.rglob('index.html')
    }
    assert len(pages) > 50
    for name, html in pages.items():
        assert '<!-- section' not in html, name
        assert '--8&lt;--' not in html, name
        assert not re.search(r':(class|func|meth|data|attr):<code', html), name
    table = pages['results/retrieval/index.html']
    assert '50.09 ± 0.78' in table
    # The picture of a README, from a page in another folder.
    picture = 'configs/soprc/resources/omniglot_losses_boxplot.png'
    assert f'../../{picture}' in table
    assert (site / picture).is_file()
