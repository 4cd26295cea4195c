"""The converters of CIFAR, Omniglot and Grocery Store, and lists of images for mmpretrain."""

import json
import re
from collections import Counter

import cv2
import numpy as np
import pytest
from cifar_trees import coded_image, every_image, write_folders
from image_files import encoded, write_files
from retrieval_trees import build

pytest.importorskip('mmpretrain')

OMNIGLOT = 'dataset_converters/omniglot'
GROCERY = 'dataset_converters/grocery'
LISTS = 'dataset_converters/image_list'
CIFAR10 = 'dataset_converters/cifar10'


def drawing():
    """Paper is 255, the left upper quarter ink."""
    image = np.full((105, 105), 255, np.uint8)
    image[:53, :53] = 0
    return encoded(image)


def test_drawings_are_inverted_and_shrunk(tmp_path, run):
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
    run(OMNIGLOT, *sources, out, '--size', 21)
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob('*.*'))
    assert files == ['Greek/character01/0001_01.png', 'Latin/character01/0001_01.png']
    image = cv2.imread(str(out / files[0]), cv2.IMREAD_UNCHANGED)
    assert image.shape == (21, 21)
    assert (image[:10, :10] == 255).all()
    assert (image[12:] == 0).all()
    assert (image[:, 12:] == 0).all()
    run(OMNIGLOT, *sources, out)
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
def test_bad_folders_of_drawings_are_named(tmp_path, run, files, message):
    bad = write_files(tmp_path / 'bad', files)
    assert message in run(OMNIGLOT, bad, tmp_path / 'out', status=2)
    assert not (tmp_path / 'out').exists()
    assert '--size must be in 1 to 105' in run(OMNIGLOT, 'a', 'out', '--size', 200, status=2)


COUNTS = {0: 60, 1: 50, 2: 40}


@pytest.fixture
def source(tmp_path):
    """Three products; the lists name images of a byte."""
    folder = tmp_path / 'source'
    for split in ('train', 'val', 'test'):
        lines = []
        for label, count in COUNTS.items():
            for number in range(count if split == 'train' else 2):
                path = f'{split}/p{label}/{number}.jpg'
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(b'x')
                lines.append(f'{path},{label},0\n')
        (folder / f'{split}.txt').write_text(''.join(lines))
    (folder / 'classes.csv').write_text(
        'fine,fine_name,coarse,coarse_name,description\n'
        '1,Oat Milk,0,Milk,"Milk, of oats."\n'
        '0,Apple,1,Fruit,Sweet.\n'
        '2,Pear,1,Fruit,Soft.\n'
    )
    return folder


def test_lists_of_products(source, run, tmp_path):
    out = tmp_path / 'out'
    assert '150 train, 6 val, 6 test' in ' '.join(run(GROCERY, source, out).split())
    assert (out / 'products.txt').read_text().splitlines() == ['Apple', 'Oat Milk', 'Pear']
    hierarchy = [line.split('\t') for line in (out / 'hierarchy.txt').read_text().splitlines()]
    assert [name for _, name in hierarchy] == ['Apple', 'Oat Milk', 'Pear']
    images = (out / 'images.txt').read_text().splitlines()
    assert len(images) == 162
    assert 'train/p1/0.jpg\tOat Milk' in images
    assert (out / 'val.txt').read_text().splitlines()[2] == 'val/p1/0.jpg 1'
    entry = json.loads((out / 'captions_test.jsonl').read_text().splitlines()[2])
    assert entry == {
        'image': 'test/p1/0.jpg',
        'caption': ['Oat Milk', 'Milk, of oats.'],
        'label': 'Oat Milk',
    }
    assert (out / 'train/p0/59.jpg').read_bytes() == b'x'
    tail = [x.split()[1] for x in (out / 'train_ratio50.txt').read_text().splitlines()]
    # 60 / 50 ** (0, 1/2, 1)
    assert Counter(tail) == {'0': 60, '1': 8, '2': 1}


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('val.txt', 'val/p0/0.jpg 0\n', r'val.txt:1.*path,fine,coarse'),
        ('val.txt', 'val/p0/0.jpg,7,0\n', 'label below 3'),
        ('val.txt', '../p0/0.jpg,0,0\n', 'within the folder'),
        ('val.txt', 'val/absent.jpg,0,0\n', r'absent\.jpg'),
        ('classes.csv', 'fine,fine_name\n0,a\n', 'lacks a column'),
        ('classes.csv', 'fine,fine_name,description\n0,a,b\n2,c,d\n', 'each of 0 to 1 once'),
    ],
)
def test_bad_lists_of_products_are_refused(source, run, tmp_path, name, text, message):
    (source / name).write_text(text)
    assert re.search(message, ' '.join(run(GROCERY, source, tmp_path / 'out', status=2).split()))
    assert not (tmp_path / 'out').exists()


def test_some_classes_of_a_tree(tmp_path, run):
    for name in ('n01', 'n02', 'n03'):
        folder = tmp_path / 'train' / name
        folder.mkdir(parents=True)
        for file in (f'{name}_0.JPEG', f'{name}_1.JPEG', 'notes.txt'):
            (folder / file).touch()
    (tmp_path / 'some.txt').write_text('n03 a bird\n\nn01\n')
    out = tmp_path / 'meta' / 'train.txt'
    assert '4 images of 2 classes' in run(
        LISTS, 'folders', tmp_path / 'train', tmp_path / 'some.txt', out
    )
    assert out.read_text().splitlines() == [
        'n03/n03_0.JPEG 0',
        'n03/n03_1.JPEG 0',
        'n01/n01_0.JPEG 1',
        'n01/n01_1.JPEG 1',
    ]
    for lines, message in (('n04\n', 'holds no image'), ('n01\nn02\nn01\n', "twice: ['n01']")):
        (tmp_path / 'some.txt').write_text(lines)
        words = ['folders', tmp_path / 'train', tmp_path / 'some.txt', tmp_path / 'x.txt']
        assert message in run(LISTS, *words, status=2)
        assert not (tmp_path / 'x.txt').exists()


def inaturalist(images, annotations):
    return dict(
        images=[dict(id=i, file_name=f'a/{i}.jpg') for i in images],
        annotations=[dict(image_id=i, category_id=c) for i, c in annotations],
    )


def test_lists_of_inaturalist(tmp_path, run):
    source, out = tmp_path / 'train.json', tmp_path / 'train.txt'
    content = inaturalist([3, 1], [(1, 7), (3, 5)])
    source.write_text(json.dumps(content))
    run(LISTS, 'inaturalist', source, out)
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
def test_bad_annotations_are_named(tmp_path, run, content, message):
    source = tmp_path / 'train.json'
    source.write_text(content)
    assert message in run(LISTS, 'inaturalist', source, tmp_path / 'x.txt', status=2)


def test_arrays_hold_the_images_in_turn(tmp_path, run):
    tree = write_folders(tmp_path / 'tree')
    out = tmp_path / 'out'
    run(CIFAR10, tree, out, '--size', 4)
    for part in ('train', 'test'):
        with np.load(out / f'{part}.npz') as file:
            images, labels = file['images'], file['labels']
        own = [x for x in every_image() if x[0] == part]
        own.sort(key=lambda x: (x[2], x[1]))
        expected = [coded_image(*x, size=4) for x in own]
        np.testing.assert_array_equal(images, expected)
        assert labels.tolist() == [label for _, label, _ in own]
    assert len(build('CIFAR10LT', out, imbalance_ratio=1)) == 400


def test_bad_sources_of_cifar_are_named(tmp_path, run):
    def refusal(source, *words):
        return run(CIFAR10, source, tmp_path / 'out', *words, status=2)

    assert 'holds no CIFAR10' in refusal(tmp_path)
    tree = write_folders(tmp_path / 'tree')
    (tree / 'test/bird/0003.png').write_bytes(b'no image')
    assert 'bird/0003.png cannot be read: ' in refusal(tree)
    (tree / 'train/bird').rename(tree / 'train/birds')
    assert "missing: ['bird'], unknown: ['birds']" in refusal(tree)
    (tmp_path / 'x.zip').write_text('text')
    assert 'x.zip holds no CIFAR10' in refusal(tmp_path / 'x.zip')
    refusal(tree, '--size', 33)
