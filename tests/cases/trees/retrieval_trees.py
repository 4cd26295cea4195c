"""Builds retrieval data sets and compares them with what was written."""

from pathlib import Path

import cv2
import numpy as np
from mmengine.registry import DATASETS


def build(name, root, **options):
    """Build a data set of mmrank."""
    return DATASETS.build(dict(type=f'mmrank.{name}', data_root=str(root), **options))


def write_images(root, paths, shape=(8, 8, 3)):
    """Write images of one colour each."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(root / path), np.full(shape, 90, np.uint8))


def check_items(dataset, root, expected):
    """Compare; ``expected`` is the class name of every path."""
    names = dataset.metainfo['classes']
    found = {}
    for index in range(len(dataset)):
        item = dataset.get_data_info(index)
        path = Path(item['img_path']).relative_to(root).as_posix()
        found[path] = names[item['gt_label']]
        assert item['sample_idx'] == index
    assert found == expected
    labels = dataset.get_gt_labels()
    assert labels.dtype.kind == 'i'
    assert sorted(set(labels.tolist())) == list(range(len(names)))
    assert [names[label] for label in labels] == list(found.values())


def write_sop(root, num_classes=40):
    """Write the lists; return the class of every path of each split."""
    header = 'image_id class_id super_class_id path\n'
    lists = {'train': [header], 'test': [header]}
    expected = {'train': {}, 'test': {}}
    image = 0
    for label in range(1, num_classes + 1):
        split = 'train' if label <= num_classes // 2 else 'test'
        group = 1 + label % 2
        for _ in range(2 + label % 3):
            image += 1
            path = f'chair_{group}/{image}_0.JPG'
            lists[split].append(f'{image} {label} {group} {path}\n')
            expected[split][path] = str(label)
    for split, lines in lists.items():
        (root / f'Ebay_{split}.txt').write_text(''.join(lines))
    return expected


def write_vehicles(root):
    """Write the training list and the three test lists."""
    folder = root / 'train_test_split'
    folder.mkdir()
    (folder / 'train_list.txt').write_text('0000001 7\n0000002 7\n0000003 10\n')
    for size, classes in ((800, 2), (1600, 4), (2400, 6)):
        lines = [f'{1000 + 3 * c + i:07d} {100 + c}\n' for c in range(classes) for i in range(3)]
        (folder / f'test_list_{size}.txt').write_text(''.join(lines))


def write_inaturalist(root):
    """Write both lists; return the training paths."""
    folder = root / 'Inat_dataset_splits'
    folder.mkdir()
    paths = [
        f'train_val2018/{group}/{species}/{i}.jpg'
        for group, species in (('Aves', 12), ('Aves', 3), ('Fungi', 3))
        for i in range(2)
    ]
    (folder / 'Inaturalist_train_set1.txt').write_text('\n'.join(paths))
    (folder / 'Inaturalist_test_set1.txt').write_text('train_val2018/Aves/9/a.jpg Aves/9\n')
    return paths
