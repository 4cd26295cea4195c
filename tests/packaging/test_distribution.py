"""The wheel, the source distribution and the editable install."""

import re
import tarfile
import zipfile

import pytest
from built_package import ROOT, build, copy_checkout

import release
from mmrank.version import __version__


@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
    return copy_checkout(tmp_path_factory.mktemp('checkout'))


@pytest.fixture(scope='module')
def wheel(checkout, tmp_path_factory):
    out = tmp_path_factory.mktemp('built') / 'wheel'
    release.add_links(checkout, 'https://example.org/mmrank')
    return zipfile.ZipFile(build(checkout, 'build_wheel', out))


def test_wheel_holds_what_mim_reads_lists_of_names_and_no_leftovers(wheel):
    names = set(wheel.namelist())
    assert len(wheel.namelist()) == len(names)
    for tool in ('train.py', 'test.py', 'dist_train.sh'):
        assert f'mmrank/.mim/tools/{tool}' in names
    assert {'mmrank/.mim/model-index.yml', 'mmrank/py.typed'} <= names
    configs = [x for x in (ROOT / 'configs').rglob('*.py') if '__pycache__' not in x.parts]
    assert {f'mmrank/.mim/{path.relative_to(ROOT)}' for path in configs} <= names
    assert {str(x.relative_to(ROOT)) for x in (ROOT / 'mmrank').rglob('*.pyi')} <= names
    for name in names:
        assert not name.endswith(('.pyc', '.pth'))
        assert not name.startswith(('tests/', 'tools/', 'configs/'))
        assert 'bootstrap' not in name


def test_wheel_metadata(wheel):
    (name,) = (x for x in wheel.namelist() if x.endswith('/METADATA'))
    text = wheel.read(name).decode()
    assert 'Name: mmrank\n' in text
    assert 'License-Expression: Apache-2.0' in text or 'Apache-2.0' in text
    extras = set(re.findall(r'^Provides-Extra: (\S+)', text, re.M))
    assert {'openmmlab', 'tests', 'optional', 'all', 'detection'} <= extras
    forced = [
        line.split(': ')[1]
        for line in text.splitlines()
        if line.startswith('Requires-Dist') and 'extra ==' not in line
    ]
    assert any(line.startswith('torch') for line in forced)
    # Either family of OpenMMLab distributions will do: one extra alone names one.
    named = re.findall(r'^Requires-Dist: (?:onedl|mm|openm)[^;\n]*; extra == .(.*).$', text, re.M)
    assert named == ['openmmlab'] * 4
    for page in ('Source, ', 'Issues, ', 'Changelog, '):
        assert f'Project-URL: {page}https://example.org/mmrank' in text
    # The long description needs no checkout.
    assert '# mmrank' in text
    assert re.findall(r'\]\(([^)]*)\)', text) == ['https://github.com/open-mmlab']
    assert not re.search(r'\bmake \w|-e \.|tools/', text)


def test_version_and_date_are_the_same_everywhere():
    citation = (ROOT / 'CITATION.cff').read_text('utf-8')
    date = re.search(rf'^version: {__version__}\ndate-released: (\S+)$', citation, re.M)[1]
    changelog = (ROOT / 'CHANGELOG.md').read_text('utf-8')
    assert f'## {__version__} ({date})\n' in changelog
    assert release.notes_of(__version__, changelog).startswith('### ')


def test_source_distribution_builds_the_same(checkout, tmp_path):
    path = build(checkout, 'build_sdist', tmp_path / 'sdist')
    with tarfile.open(path) as archive:
        names = {name.split('/', 1)[-1] for name in archive.getnames()}
    for name in ('LICENSE', 'setup.py', 'model-index.yml', 'tools/train.py'):
        assert name in names
    assert 'requirements/runtime.txt' in names
    assert 'configs/stable_ap/metafile.yml' in names
    assert not [x for x in names if x.startswith('mmrank/.mim')]


def test_editable_install_links_to_the_checkout(checkout, tmp_path):
    build(checkout, 'build_editable', tmp_path / 'editable')
    mim = checkout / 'mmrank' / '.mim'
    for name in ('configs', 'tools', 'model-index.yml'):
        assert (mim / name).is_symlink()
        assert (mim / name).resolve() == (checkout / name).resolve()
