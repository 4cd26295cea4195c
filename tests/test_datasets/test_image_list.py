"""Lists of images for mmpretrain.CustomDataset."""

import json
from functools import partial
from pathlib import Path

import pytest
from forked_processes import run_script

TOOL = Path(__file__).parents[2] / 'tools/dataset_converters/image_list.py'
run = partial(run_script, TOOL)


@pytest.fixture
def tree(tmp_path):
    for name in ('n01', 'n02', 'n03'):
        (tmp_path / 'train' / name).mkdir(parents=True)
        for i in range(2):
            (tmp_path / 'train' / name / f'{name}_{i}.JPEG').touch()
        (tmp_path / 'train' / name / 'notes.txt').touch()
    return tmp_path


def test_some_classes_of_a_tree(tree):
    (tree / 'some.txt').write_text('n03 a bird\n\nn01\n')
    out = tree / 'meta' / 'train.txt'
    done = run('folders', tree / 'train', tree / 'some.txt', out)
    assert done.returncode == 0, done.stderr
    assert out.read_text().splitlines() == [
        'n03/n03_0.JPEG 0',
        'n03/n03_1.JPEG 0',
        'n01/n01_0.JPEG 1',
        'n01/n01_1.JPEG 1',
    ]
    assert '4 images of 2 classes' in done.stdout


@pytest.mark.parametrize(
    ('lines', 'message'), [('n04\n', 'holds no image'), ('n01\nn02\nn01\n', "twice: ['n01']")]
)
def test_bad_classes_are_named(tree, lines, message):
    (tree / 'some.txt').write_text(lines)
    done = run('folders', tree / 'train', tree / 'some.txt', tree / 'x.txt')
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tree / 'x.txt').exists()


def inaturalist(images, annotations):
    return dict(
        images=[dict(id=i, file_name=f'a/{i}.jpg') for i in images],
        annotations=[dict(image_id=i, category_id=c) for i, c in annotations],
    )


def test_inaturalist(tmp_path):
    source, out = tmp_path / 'train.json', tmp_path / 'train.txt'
    content = inaturalist([3, 1], [(1, 7), (3, 5)])
    source.write_text(json.dumps(content))
    done = run('inaturalist', source, out)
    assert done.returncode == 0, done.stderr
    assert out.read_text() == 'a/1.jpg 7\na/3.jpg 5\n'


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ('[', 'bytes, is cut off or damaged'),
        (json.dumps(dict(images=[])), "KeyError: 'annotations'"),
        (json.dumps(inaturalist([1, 2], [(1, 7)])), 'needs exactly one'),
        (json.dumps(inaturalist([1], [(1, 7), (1, 8)])), 'needs exactly one'),
    ],
)
def test_bad_annotations_are_named(tmp_path, content, message):
    source = tmp_path / 'train.json'
    source.write_text(content)
    done = run('inaturalist', source, tmp_path / 'x.txt')
    assert done.returncode == 2
    assert message in done.stderr
