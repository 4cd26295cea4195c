"""The wheel, the source distribution and the editable install."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
from built_package import ROOT, build, copy_checkout, install

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


@pytest.fixture(scope='module')
def mmrank(tmp_path_factory):
    """Runs the installed command in an empty folder; it must end with one of some statuses."""
    pytest.importorskip('mmdet')
    root = tmp_path_factory.mktemp('wheel')
    place = install(root)
    empty = root / 'empty'
    empty.mkdir()
    # The environment has the other packages, and a checkout's mmrank, which the wheel precedes.
    env = {**os.environ, 'PYTHONPATH': str(place)}

    def run(line, statuses=(0,)):
        command = [sys.executable, str(place / 'bin' / 'mmrank'), *line.split()]
        done = subprocess.run(command, cwd=empty, env=env, capture_output=True, text=True)
        assert done.returncode in statuses, done.stdout + done.stderr
        return done.stdout + done.stderr

    run.folder = empty
    return run


@pytest.mark.slow
def test_each_command_works(mmrank):
    assert 'can train and test detectors' in mmrank('doctor')
    mmrank('demo --quick')
    data = 'data/shapes_demo_quick'
    labels = f'{data}/annotations/val.json'
    mmrank(f'check coco {labels} --images {data}/val')
    mmrank(f'new-config --coco {data} --model atss-r18 --small --epochs 1 --out mine.py')
    options = '--cfg-options train_dataloader.num_workers=0 val_dataloader.num_workers=0'
    options += ' train_dataloader.persistent_workers=False val_dataloader.persistent_workers=False'
    mmrank(f'train mine.py {options}')
    checkpoint = next((mmrank.folder / 'work_dirs/mine').glob('epoch_*.pth'))
    options = '--cfg-options test_dataloader.num_workers=0'
    mmrank(f'test mine.py {checkpoint} {options} test_dataloader.persistent_workers=False')
    mmrank(f'draw detections {labels} {data}/val work_dirs/demo_quick/focal.bbox.json')
    name = min(path.name for path in (mmrank.folder / data / 'val').iterdir())
    (mmrank.folder / 'labels.csv').write_text(f'{name},1,1,9,9,a\n')
    mmrank(f'convert labels.csv --from csv --images {data}/val --out labels.json')
    # An epoch of a network with random weights learns little, or nothing, which ends with 1.
    mmrank('compare mine.py --losses own --seeds 1 --epochs 1', statuses=(0, 1))
    assert (mmrank.folder / 'work_dirs/compare_mine/trainings/report.md').is_file()
