"""Made-up images in the folders of the papers' data sets."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


def write_cifar(folder: Path, names: Sequence[str], counts: Mapping[str, int], size: int) -> None:
    """So many images of each class and part, as the converter writes them."""
    folder.mkdir(parents=True)
    for part, count in counts.items():
        labels = np.repeat(np.arange(len(names)), count)
        shape = (len(labels), size, size, 3)
        images = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
        np.savez(folder / f'{part}.npz', images=images, labels=labels, classes=np.array(names))


def write_retrieval(data: Path, image: Path, classes: Mapping[str, int]) -> None:
    """Stanford Online Products, PKU VehicleID and iNaturalist-2018; all images are one file.

    Args:
        data (Path): Folder to write them to.
        image (Path): An image.
        classes (dict): Number of the training classes by folder; four more are for the test. A
            class has four images.
    """
    files = []
    for name, number in classes.items():
        folder = data / name
        for split, labels in (('train', range(number)), ('test', range(number, number + 4))):
            images, path, lines = FORMS[name](labels, split)
            files += [folder / x for x in images]
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text('\n'.join(lines))
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(image, path)


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
