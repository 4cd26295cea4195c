"""The converter of Omniglot on drawings made here."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from image_files import encoded, write_files

TOOL = Path(__file__).resolve().parents[2] / 'tools/dataset_converters/omniglot.py'


def drawing():
    """Paper is 255, the left upper quarter ink."""
    image = np.full((105, 105), 255, np.uint8)
    image[:53, :53] = 0
    return encoded(image)


def test_drawings_are_inverted_and_shrunk(tmp_path, run_script):
    sources = [
        write_files(
            tmp_path / f'{part}',
            [
                (f'images/{alphabet}/character01/0001_01.png', drawing()),
                ('images/readme.txt', b'text'),
            ],
        )
        for part, alphabet in enumerate(('Greek', 'Latin'))
    ]
    out = tmp_path / 'out'
    assert run_script(TOOL, *sources, out, '--size', 21)[0] == 0
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob('*.*'))
    assert files == ['Greek/character01/0001_01.png', 'Latin/character01/0001_01.png']
    image = cv2.imread(str(out / files[0]), cv2.IMREAD_UNCHANGED)
    assert image.shape == (21, 21)
    assert (image[:10, :10] == 255).all()
    assert (image[12:] == 0).all()
    assert (image[:, 12:] == 0).all()
    assert run_script(TOOL, *sources, out)[0] == 0
    assert cv2.imread(str(out / files[0]), cv2.IMREAD_UNCHANGED).shape == (28, 28)


@pytest.mark.parametrize(
    ('files', 'message'),
    [
        ([('a/b/c.png', b'no image')], 'a/b/c.png cannot be read'),
        ([('c.png', drawing())], 'not of the form alphabet/character'),
        ([('a.txt', b'')], 'holds no drawing'),
        ([], 'bad holds no drawing. Fix: unpack'),
    ],
)
def test_bad_folders_are_named(tmp_path, run_script, files, message):
    status, _, errors = run_script(TOOL, write_files(tmp_path / 'bad', files), tmp_path / 'out')
    assert status == 2
    assert message in errors
    assert not (tmp_path / 'out').exists()


def test_other_sizes_are_refused(run_script):
    status, _, errors = run_script(TOOL, 'a', 'out', '--size', 200)
    assert status == 2
    assert '--size must be in 1 to 105' in errors
