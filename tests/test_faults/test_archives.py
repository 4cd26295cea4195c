"""Archives of a stranger: nothing outside the folder."""

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cifar_trees import CIFAR10_NAMES
from image_archives import encoded, png_that_claims, write_zip

from archive import unpacked
from mmrank.errors import UserError
from mmrank.files import whole_folder

ROOT = Path(__file__).resolve().parents[2]
CONVERTERS = ROOT / 'tools/dataset_converters'


def content(folder):
    """Files of a folder, hidden ones included."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob('*') if p.is_file())


def unpack(path, select=lambda name: True):
    """Names and sizes of the files that a converter would see."""
    with unpacked(path, path.parent / 'out', select) as folder:
        return {name: (folder / name).stat().st_size for name in content(folder)}


def test_members_are_unpacked_and_selected(tmp_path):
    members = [('a/1.txt', b'one'), ('a/', b''), ('b.txt', b'two' * 10**6)]
    path = write_zip(tmp_path / 'a.zip', members)
    assert unpack(path) == {'a/1.txt': 3, 'b.txt': 3 * 10**6}
    assert unpack(path, lambda x: x == 'b.txt') == {'b.txt': 3 * 10**6}
    assert content(tmp_path) == ['a.zip']


REFUSED = {
    '/tmp/escaped.png': 'is absolute',
    '\\escaped.png': 'is absolute',
    'C:/escaped.png': 'is absolute',
    'a/../../escaped.png': r"leaves its folder by '\.\.'",
    'a\\..\\escaped.png': r"leaves its folder by '\.\.'",
    'x' * 300 + '.png': 'has a part of 304 bytes',
    ' ': 'is empty',
}


@pytest.mark.parametrize('name', REFUSED)
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    path = write_zip(tmp_path / 'a.zip', [('good.png', b'1'), (name, b'2')])
    with pytest.raises(UserError, match=REFUSED[name]) as caught:
        unpack(path)
    for part in (str(path), repr(name[:50])[:-1], 'Fix: '):
        assert part in str(caught.value)
    assert content(tmp_path) == ['a.zip']


def test_lying_headers_do_not_help(tmp_path):
    """The table of contents says 1 byte; 12 million come out or none."""
    path = write_zip(tmp_path / 'a.zip', [('bomb', bytes(12 * 10**6))])
    data = bytearray(path.read_bytes())
    place = data.rindex(b'PK\x01\x02')
    data[place + 24 : place + 28] = struct.pack('<I', 1)
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"a\.zip cannot be unpacked: .*'bomb'"):
        unpack(path)
    assert content(tmp_path) == ['a.zip']


def test_a_killed_run_leaves_nothing(tmp_path):
    path = write_zip(tmp_path / 'a.zip', [(f'{i}.txt', os.urandom(9)) for i in range(500)])
    script = (
        'import sys, time\nfrom archive import unpacked\n'
        'with unpacked(*sys.argv[1:], str.strip):\n    print(1, flush=True); time.sleep(60)\n'
    )
    process = subprocess.Popen(
        [sys.executable, '-c', script, path, tmp_path / 'out'],
        stdout=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': f'{ROOT}:{ROOT / "tools/dataset_converters"}'},
    )
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / 'out').exists()
    (left,) = (p for p in tmp_path.iterdir() if p != path)
    assert left.name.startswith('.out.')
    assert len(unpack(path)) == 500
    assert not left.exists()


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
