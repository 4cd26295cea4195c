"""Archives of a stranger: nothing outside the folder, nothing too large."""

import os
import signal
import stat
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cifar_trees import CIFAR10_NAMES
from image_archives import encoded, png_that_claims, write_zip

from lib.common.archive import ArchiveError, ArchiveLimits, extract_archive
from mmrank.files import path_fault, whole_folder

ROOT = Path(__file__).resolve().parents[2]
CONVERTERS = ROOT / 'tools/dataset_converters'


def content(folder):
    """Files of a folder, hidden ones included."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob('*') if p.is_file())


def test_members_are_unpacked_and_selected(tmp_path):
    members = [('a/1.txt', b'one'), ('a/', b''), ('b.txt', b'two' * 10**6)]
    path = write_zip(tmp_path / 'a.zip', members)
    steps = []
    count = extract_archive(path, tmp_path / 'out', progress=lambda *x: steps.append(x))
    assert count == 2
    assert (tmp_path / 'out/b.txt').read_bytes() == b'two' * 10**6
    assert steps == [(3, 3000003), (3000003, 3000003)]
    extract_archive(path, tmp_path / 'one', select=lambda x: x == 'b.txt')
    assert content(tmp_path / 'one') == ['b.txt']


REFUSED = {
    '/tmp/escaped.png': 'is absolute',
    '\\escaped.png': 'is absolute',
    'C:/escaped.png': 'is absolute',
    'a/../../escaped.png': r"leaves its folder by '\.\.'",
    'a\\..\\escaped.png': r"leaves its folder by '\.\.'",
    'a\\escaped.png': 'holds a backslash',
    'x' * 300 + '.png': 'has a part of 304 bytes',
    ' ': 'is empty',
}


@pytest.mark.parametrize('name', REFUSED)
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    path = write_zip(tmp_path / 'a.zip', [('good.png', b'1'), (name, b'2')])
    with pytest.raises(ArchiveError, match=REFUSED[name]) as caught:
        extract_archive(path, tmp_path / 'out')
    for part in (str(path), repr(name[:50])[:-1], 'Fix: '):
        assert part in str(caught.value)
    assert content(tmp_path) == ['a.zip']


@pytest.mark.parametrize(
    ('kind', 'message'),
    [
        (stat.S_IFLNK, 'is a symbolic link'),
        (stat.S_IFCHR, 'is a device'),
        (stat.S_IFBLK, 'is a device'),
        (stat.S_IFIFO, 'is a named pipe'),
    ],
)
def test_links_and_devices_are_refused(tmp_path, kind, message):
    path = write_zip(tmp_path / 'a.zip', [('x', b'/etc/passwd')], kind | 0o644)
    with pytest.raises(ArchiveError, match=f"member 'x' {message}"):
        extract_archive(path, tmp_path / 'out')
    assert content(tmp_path) == ['a.zip']


def test_null_characters_and_doubles_are_refused(tmp_path):
    path = write_zip(tmp_path / 'a.zip', [('good_x.txt', b'1')])
    path.write_bytes(path.read_bytes().replace(b'good_x', b'good\0x'))
    with pytest.raises(ArchiveError, match='holds a null character'):
        extract_archive(path, tmp_path / 'out')
    with pytest.warns(UserWarning, match='Duplicate'):
        path = write_zip(tmp_path / 'a.zip', [('x', b'1'), ('x', b'2')])
    with pytest.raises(ArchiveError, match='occurs twice'):
        extract_archive(path, tmp_path / 'out')
    path = write_zip(tmp_path / 'a.zip', [('x', b'1'), ('x/y', b'2')])
    with pytest.raises(ArchiveError, match="'x/y' is a file where another"):
        extract_archive(path, tmp_path / 'out')


def test_methods_without_a_memory_bound_are_refused(tmp_path):
    path = write_zip(tmp_path / 'a.zip', [('x', b'0' * 10**6)], method=zipfile.ZIP_BZIP2)
    with pytest.raises(ArchiveError, match="'x' is compressed by method 12"):
        extract_archive(path, tmp_path / 'out')


def test_limits_name_the_member_and_can_be_raised(tmp_path):
    bomb = [('small', b'1'), ('bomb', bytes(12 * 10**6))]
    path = write_zip(tmp_path / 'a.zip', bomb)
    for limits, message in (
        (None, "with member 'bomb' .* 100 times its own .*raise max_ratio"),
        (
            ArchiveLimits(max_bytes=10**6, max_ratio=1e4),
            "with member 'bomb' .* 1,000,000 bytes, the limit.*max_bytes",
        ),
        (
            ArchiveLimits(max_members=1),
            "more than 1 members, the limit; the next is 'bomb'.*max_members",
        ),
    ):
        with pytest.raises(ArchiveError, match=message):
            extract_archive(path, tmp_path / 'out', limits=limits)
        assert content(tmp_path) == ['a.zip']
    limits = ArchiveLimits(max_ratio=2000)
    assert extract_archive(path, tmp_path / 'out', limits=limits) == 2


def test_lying_headers_do_not_help(tmp_path):
    """The table of contents says 1 byte; 12 million come out or none."""
    path = write_zip(tmp_path / 'a.zip', [('bomb', bytes(12 * 10**6))])
    data = bytearray(path.read_bytes())
    place = data.rindex(b'PK\x01\x02')
    data[place + 24 : place + 28] = struct.pack('<I', 1)
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="'bomb' is damaged"):
        extract_archive(path, tmp_path / 'out')
    assert content(tmp_path) == ['a.zip']


def test_a_killed_run_leaves_nothing(tmp_path):
    path = write_zip(tmp_path / 'a.zip', [(f'{i}.txt', os.urandom(9)) for i in range(500)])
    script = (
        'import sys, time\nfrom lib.common.archive import extract_archive\ndef slow(done, '
        'total):\n    print(done, flush=True); time.sleep(0.05)\nextract_archive(*sys.argv[1:], '
        'progress=slow)\n'
    )
    process = subprocess.Popen(
        [sys.executable, '-c', script, path, tmp_path / 'out'],
        stdout=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': f'{ROOT}:{ROOT / "tools"}'},
    )
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / 'out').exists()
    (left,) = (p for p in tmp_path.iterdir() if p != path)
    assert left.name.startswith('.out.')
    extract_archive(path, tmp_path / 'out')
    assert not left.exists()
    assert len(content(tmp_path / 'out')) == 500


def test_a_folder_keeps_its_other_files(tmp_path):
    out = tmp_path / 'out'
    for files in (['a/1', 'b'], ['a/2', 'b', 'c/3']):
        with whole_folder(out) as folder:
            for name in files:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(files[0])
    assert content(tmp_path) == ['out/a/1', 'out/a/2', 'out/b', 'out/c/3']
    assert (out / 'b').read_text() == 'a/2'

    def fail():
        with whole_folder(out) as folder:
            (folder / 'd').write_text('')
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert content(tmp_path) == ['out/a/1', 'out/a/2', 'out/b', 'out/c/3']


@pytest.mark.parametrize('name', ['1.png', 'a b/ü.png', 'a/..b/c..d.png', './1.png', 'x' * 250])
def test_names_that_stay_are_fine(name):
    assert path_fault(name) is None


def drawing():
    return encoded(np.full((105, 105), 255))


def huge_png():
    return png_that_claims(60_000, 60_000)


CASES = {
    'absolute': (lambda tmp: f'{tmp}/x/y/escaped.png', drawing, 'is absolute'),
    'parent': (lambda tmp: '../x/y/escaped.png', drawing, 'leaves its folder'),
    'image bomb': (lambda tmp: 'train/y/z.png', huge_png, 'exceeds limit'),
}


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize(
    ('tool', 'options'),
    [
        ('omniglot.py', ()),
        ('cifar10.py', ()),
        ('make_captions.py', ('--per-class', '1', '--val-per-class', '1')),
    ],
)
def test_no_converter_leaves_its_folder(tmp_path, run_script, tool, options, case):
    pytest.importorskip('mmpretrain')
    name, image, message = CASES[case]
    members = [(name(tmp_path), image())]
    if case == 'image bomb':
        members = [
            (f'{split}/{x}/{i}.png', image())
            for split in ('train', 'test')
            for x in CIFAR10_NAMES
            for i in range(2)
        ]
    path = write_zip(tmp_path / 'a.zip', members)
    out = tmp_path / 'out'
    start = time.process_time()
    status, _, errors = run_script(CONVERTERS / tool, *options, path, out)
    assert status == 2
    assert 'a.zip' in errors
    assert message in errors
    assert content(tmp_path) == ['a.zip']
    assert time.process_time() - start < 20


def test_limits_are_options(tmp_path, run_script):
    members = [(f'x/y/{i}.png', drawing()) for i in range(3)]
    path = write_zip(tmp_path / 'a.zip', members)
    tool = CONVERTERS / 'omniglot.py'
    for option, value, message in (
        ('--max-members', 2, 'more than 2 members'),
        ('--max-gigabytes', 1e-7, 'more than 100 bytes'),
        ('--max-ratio', 0, '--max-ratio must be above 0'),
    ):
        status, _, errors = run_script(tool, path, tmp_path / 'out', option, value)
        assert status == 2
        assert message in errors
    assert run_script(tool, path, tmp_path / 'out')[0] == 0
    assert len(content(tmp_path / 'out')) == 3
