"""The generated data set: seeded, valid, long-tailed."""

import dataclasses
import hashlib

import numpy as np
import pytest
from pycocotools.coco import COCO

from mmrank.apis.synthetic.shapes_coco import ShapesSpec, _render_image, write_shapes_coco
from mmrank.datasets.checks.coco_inspect import read_checked

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
    areas = np.array([item['area'] for image in objects for item in image])
    assert np.mean(areas < 32**2) > 0.5
    assert 0 < sum(not image for image in objects) < 20


def test_balanced_and_single_class():
    spec = dataclasses.replace(SPEC, imbalance=1.0)
    assert spec.class_probabilities == pytest.approx(np.full(6, 1 / 6))
    spec = dataclasses.replace(SPEC, num_classes=1)
    assert spec.class_probabilities == pytest.approx([1.0])
    _, objects = _render_image(spec, 'train', 0)
    assert {item['category_id'] for item in objects} == {1}


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
        dataclasses.replace(SPEC, **{field: value})
