"""Made-up data in the folders of the papers' data sets; all images but CIFAR's are one file."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from chest_xray_tree import write_chest_xrays
from mmpretrain.datasets import CIFAR10, CIFAR100

from make_interactions import write_interactions

#: All training classes of retrieval, of the trainval splits too.
CLASSES = {'Stanford_Online_Products': 11318, 'VehicleID': 13134, 'inaturalist2018': 5690}


def write_in_batch(data: Path, image: Path) -> None:
    """Interactions: as many entities as there are, and fewer pairs."""
    write_interactions(data / 'interactions')
    for split, count, shift in (('train', 15449, 0), ('test', 50, 9)):
        lines = [
            f'{i % 3801},{(i * 7 + 1 + shift) % 3801} {i + 1}:1 {186104 - i}:0.5'
            for i in range(count)
        ]
        write_lines(data / f'eurlex/{split}.txt', lines)
    for split, offsets in (('train', range(4)), ('test', range(4, 6))):
        lines = [f'{u}::{(u + 600 * k) % 3533}::5::0' for u in range(6038) for k in offsets]
        write_lines(data / f'movielens-1m/{split}.dat', lines)


def write_isogclr(data: Path, image: Path) -> None:
    """As many samples as the real sets, which the losses count; of CC3M, 16 pairs."""
    for name, data_set, number in (('cifar10', CIFAR10, 5000), ('cifar100', CIFAR100, 500)):
        write_cifar(data / name, data_set.METAINFO['classes'], number, size=8)
    files = [f'{i}.jpg' for i in range(4)]
    for part, number in (('train', 126689), ('val', 5000)):
        link(image, (data / 'imagenet' / part / 'a' / name for name in files))
        write_lines(data / f'imagenet/meta/{part}100.txt', labelled('a', number))
    link(image, (data / 'inaturalist2018/train_val2018/a' / name for name in files))
    for part, number in (('train', 437513), ('val', 24426)):
        lines = labelled('train_val2018/a', number)
        write_lines(data / f'inaturalist2018/{part}.txt', lines)
    link(image, (data / 'cc3m/images' / name for name in files))
    lines = [f'images/{i % 4}.jpg\ta photo of number {i}' for i in range(16)]
    write_lines(data / 'cc3m/train.tsv', ['filepath\ttitle', *lines])
    entries = [
        {'filename': name, 'filepath': '', 'split': part, 'sentences': [{'raw': f'photo {name}'}]}
        for part, name in zip(('val', 'val', 'test', 'test'), files)
    ]
    for path, images in (
        ('coco/annotations/dataset_coco.json', 'coco'),
        ('flickr30k/dataset_flickr30k.json', 'flickr30k/flickr30k_images'),
    ):
        link(image, (data / images / name for name in files))
        write_lines(data / path, [json.dumps({'images': entries})])


def write_soprc(data: Path, image: Path) -> None:
    """Retrieval, with all classes."""
    for name, number in CLASSES.items():
        write_retrieval(data, image, name, number)


def write_stable_ap(data: Path, image: Path) -> None:
    """Retrieval with six classes, COCO with four images in both parts, chest X-rays and CIFAR."""
    for name in CLASSES:
        write_retrieval(data, image, name, 6)
    names = [f'{i:012d}.jpg' for i in range(1, 5)]
    images = [{'id': i, 'file_name': x, 'width': 120, 'height': 90} for i, x in enumerate(names)]
    boxes = {1: [10, 10, 60, 50], 17: [70, 20, 25, 30]}  # one of them is small
    objects = [
        {'id': 20 * i + label, 'image_id': i, 'category_id': label, 'bbox': box, 'iscrowd': 0}
        for i in range(4)
        for label, box in boxes.items()
    ]
    for item in objects:
        item['area'] = item['bbox'][2] * item['bbox'][3]
    labels = [{'id': 1, 'name': 'person'}, {'id': 17, 'name': 'cat'}]
    content = {'images': images, 'annotations': objects, 'categories': labels}
    for part in ('train2017', 'val2017'):
        link(image, (data / 'coco' / part / name for name in names))
        write_lines(data / f'coco/annotations/instances_{part}.json', [json.dumps(content)])
    write_chest_xrays(data / 'chest_xray14')
    for name, data_set in (('cifar10', CIFAR10), ('cifar100', CIFAR100)):
        write_cifar(data / name, data_set.METAINFO['classes'], 500, size=32)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(f'{line}\n' for line in lines))


def link(image: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(image, path)


def labelled(folder: str, number: int) -> list[str]:
    """So many lines of an image and its label, over four files and two classes."""
    return [f'{folder}/{i % 4}.jpg {i % 2}' for i in range(number)]


def write_cifar(folder: Path, names: Sequence[str], number: int, size: int) -> None:
    """So many training images of each class, and fewer to test, as the converter writes them."""
    folder.mkdir(parents=True)
    for part, count in (('train', number), ('test', max(number // 500, 10))):
        labels = np.repeat(np.arange(len(names)), count)
        shape = (len(labels), size, size, 3)
        images = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
        np.savez(folder / f'{part}.npz', images=images, labels=labels, classes=np.array(names))


def write_retrieval(data: Path, image: Path, name: str, number: int) -> None:
    """A data set of retrieval with four images a class, and four classes more for the test."""
    for split, classes in (('train', range(number)), ('test', range(number, number + 4))):
        files, path, lines = FORMS[name](classes, split)
        link(image, (data / name / file for file in files))
        write_lines(data / name / path, lines)


def _products(labels: range, split: str) -> tuple[list[str], str, list[str]]:
    # Labels begin at 1.
    images = {f'chair_final/{label}_{i}.JPG': label + 1 for label in labels for i in range(4)}
    lines = [f'1 {label} 1 {name}' for name, label in images.items()]
    return [*images], f'Ebay_{split}.txt', ['image_id class_id super_class_id path', *lines]


def _vehicles(labels: range, split: str) -> tuple[list[str], str, list[str]]:
    lines = [f'{4 * label + i:07d} {label}' for label in labels for i in range(4)]
    images = [f'image/{line.split()[0]}.jpg' for line in lines]
    name = 'train_list' if split == 'train' else 'test_list_2400'
    return images, f'train_test_split/{name}.txt', lines


def _species(labels: range, split: str) -> tuple[list[str], str, list[str]]:
    images = [f'train_val2018/Aves/{x}/{x}_{i}.jpg' for x in labels for i in range(4)]
    return images, f'Inat_dataset_splits/Inaturalist_{split}_set1.txt', images


FORMS = {'Stanford_Online_Products': _products, 'VehicleID': _vehicles, 'inaturalist2018': _species}
WRITERS = {
    'in_batch': write_in_batch,
    'isogclr': write_isogclr,
    'soprc': write_soprc,
    'stable_ap': write_stable_ap,
}
