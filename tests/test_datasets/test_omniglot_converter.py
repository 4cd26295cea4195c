"""The converter of Omniglot on archives made here."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from image_archives import encoded, write_zip

TOOL = Path(__file__).resolve().parents[2] / 'tools/dataset_converters/omniglot.py'


@pytest.fixture
def convert(run_script):
    """Runs the tool: status and error output."""
    return lambda *arguments: run_script(TOOL, *arguments)[::2]


def drawing():
    """Paper is 255, the left upper quarter ink."""
    image = np.full((105, 105), 255, np.uint8)
    image[:53, :53] = 0
    return encoded(image)


def test_drawings_are_inverted_and_shrunk(tmp_path, convert):
    zips = [
        write_zip(
            tmp_path / f'{part}.zip',
            [
                (f'images/{alphabet}/character01/0001_01.png', drawing()),
                ('images/readme.txt', b'text'),
            ],
        )
        for part, alphabet in enumerate(('Greek', 'Latin'))
    ]
    out = tmp_path / 'out'
    assert convert(*zips, out, '--size', 21)[0] == 0
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob('*.*'))
    assert files == ['Greek/character01/0001_01.png', 'Latin/character01/0001_01.png']
    image = cv2.imread(str(out / files[0]), cv2.IMREAD_UNCHANGED)
    assert image.shape == (21, 21)
    assert (image[:10, :10] == 255).all()
    assert (image[12:] == 0).all()
    assert (image[:, 12:] == 0).all()


@pytest.mark.parametrize(
    ('members', 'message'),
    [
        ([('a/b/c.png', b'no image')], 'a/b/c.png cannot be read'),
        ([('c.png', drawing())], 'not of the form alphabet/character'),
        ([('a/../../c.png', drawing())], "leaves its folder by '..'"),
        ([('a.txt', b'')], 'holds no drawing'),
    ],
)
def test_bad_archives_are_named(tmp_path, convert, members, message):
    path = write_zip(tmp_path / 'bad.zip', members)
    status, errors = convert(path, tmp_path / 'out')
    assert status == 2
    assert 'bad.zip' in errors
    assert message in errors
    assert not list(tmp_path.rglob('*.png'))


def test_other_files_and_sizes_are_refused(tmp_path, convert):
    (tmp_path / 'text.zip').write_text('text')
    assert convert(tmp_path / 'text.zip', tmp_path / 'out')[0] == 2
    assert convert(tmp_path / 'none.zip', tmp_path / 'out')[0] == 2
    status, errors = convert('a.zip', 'out', '--size', 200)
    assert status == 2
    assert '--size must be in 1 to 105' in errors
