"""Made-up data: seeded, valid, long-tailed, and what is promised of them."""

import dataclasses
import hashlib

import numpy as np
import pytest
from pycocotools.coco import COCO

from make_glyphs import draw_glyph
from make_interactions import make_interactions
from mmrank.annotations.check import read_checked
from mmrank.datasets.shapes_coco import ShapesSpec, _render_image, write_shapes_coco

SPEC = ShapesSpec(num_train=12, num_val=3, num_test=0, seed=5)


def digest(folder) -> dict:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob('*'))
        if path.is_file()
    }


def test_same_seed_same_bytes(tmp_path):
    write_shapes_coco(tmp_path / 'a', SPEC)
    write_shapes_coco(tmp_path / 'b', SPEC)
    first = digest(tmp_path / 'a')
    assert first == digest(tmp_path / 'b')
    assert len(first) == 12 + 3 + 2
    write_shapes_coco(tmp_path / 'c', dataclasses.replace(SPEC, seed=6))
    other = digest(tmp_path / 'c')
    assert all(other[name] != first[name] for name in first)


def test_an_image_does_not_depend_on_the_number_of_images():
    large = dataclasses.replace(SPEC, num_train=500)
    image, objects = _render_image(SPEC, 'train', 7)
    same, same_objects = _render_image(large, 'train', 7)
    assert (image == same).all()
    assert objects == same_objects
    other, _ = _render_image(SPEC, 'val', 7)
    assert (image != other).any()


def test_files_are_valid_coco(tmp_path):
    files = write_shapes_coco(tmp_path, SPEC)
    assert set(files) == {'train', 'val'}
    for split, ann_file in files.items():
        _, report = read_checked(
            ann_file, tmp_path / split, classes=SPEC.classes, verify_images=True
        )
        assert not report.problems
    coco = COCO(str(files['train']))
    assert len(coco.getImgIds()) == 12
    assert coco.getCatIds() == [1, 2, 3, 4, 5, 6]
    for ann in coco.dataset['annotations']:
        x, y, w, h = ann['bbox']
        assert x >= 0
        assert y >= 0
        assert x + w <= 256
        assert y + h <= 192
        assert 0 < ann['area'] <= w * h


def test_tail_sizes_and_empty_images():
    spec = dataclasses.replace(SPEC, width=128, height=96, max_size=64)
    objects = [_render_image(spec, 'train', i)[1] for i in range(150)]
    labels = [item['category_id'] - 1 for image in objects for item in image]
    counts = np.bincount(labels, minlength=6)
    assert (counts > 0).all()
    assert counts[0] > 5 * counts[5]
    balanced = dataclasses.replace(SPEC, imbalance=1.0)
    assert balanced.class_probabilities == pytest.approx([1 / 6] * 6)
    single = dataclasses.replace(SPEC, num_classes=1)
    assert single.class_probabilities == pytest.approx([1.0])
    areas = np.array([item['area'] for image in objects for item in image])
    assert np.mean(areas < 32**2) > 0.5
    assert 0 < sum(not image for image in objects) < 20


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('num_train', 0),
        ('width', 10),
        ('num_classes', 9),
        ('imbalance', 0.5),
        ('min_size', 2),
        ('max_size', 300),
        ('empty_fraction', 1.0),
        ('seed', -1),
    ],
)
def test_impossible_values_are_refused(field, value):
    with pytest.raises(ValueError, match=f'{field}.*{value!r}'):
        ShapesSpec(**{field: value})


def drawings(classes, per_class, **options):
    return np.stack(
        [[draw_glyph(c, i, **options) for i in range(per_class)] for c in range(classes)]
    )


def test_drawings_follow_from_the_seed():
    images = drawings(3, 3)
    assert images.shape == (3, 3, 28, 28)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, drawings(3, 3))
    # More classes or drawings leave those before them as they are.
    more = drawings(4, 5)
    np.testing.assert_array_equal(images, more[:3, :3])
    other = drawings(3, 3, seed=1)
    assert (images != other).any(axis=(2, 3)).all()
    assert len({image.tobytes() for image in images.reshape(9, -1)}) == 9


def test_tool_writes_class_folders(tmp_path, run):
    tool = 'dataset_converters/make_glyphs'
    run(tool, tmp_path, '--classes 11 --per-class 2 --size 16')
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [f'glyph_{i:02d}' for i in range(11)]
    assert len(list(tmp_path.rglob('*.png'))) == 22
    for name, least in (('classes', 1), ('size', 8), ('seed', 0)):
        error = run(tool, tmp_path, f'--{name}', least - 1, status=2)
        assert f'--{name} must be at least {least}' in error


@pytest.mark.parametrize('seed', [0, 1])
@pytest.mark.parametrize('shape', [(50, 30), (9, 9)])
def test_every_entity_is_in_training(shape, seed):
    train, held_out = make_interactions(*shape, per_user=4, seed=seed)
    for i, size in enumerate(shape):
        assert np.unique(train[:, i]).tolist() == list(range(size))
    both = {tuple(x) for x in np.concatenate([train, held_out])}
    assert len(both) == len(train) + len(held_out)
    assert 4 * shape[0] <= len(both) <= 5 * shape[0]
    assert len(held_out)
    again, other = (make_interactions(*shape, per_user=4, seed=x)[0] for x in (seed, seed + 2))
    assert np.array_equal(again, train)
    assert not np.array_equal(other, train)
    if shape == (50, 30):  # a tenth of the items has more than half of them
        counts = np.sort(np.bincount(train[:, 1]))
        assert counts[-3:].sum() > counts[:15].sum()
