"""What ``--fix`` completes and tidies: sizes of images, names, masks."""

import os
from collections.abc import Sequence
from unicodedata import normalize

from mmrank.datasets.checks.coco_annotations import LARGEST_PIXEL
from mmrank.datasets.checks.coco_images import spelling_on_disk
from mmrank.datasets.checks.data_report import is_number
from mmrank.datasets.image_header import image_size
from mmrank.files import path_fault


def tidy_images(images: Sequence, image_dir: str | os.PathLike | None) -> tuple[list, list[str]]:
    """Images with the file names of the disk, and with a size where they lack one.

    A size is read from the picture, turned as loaders turn it. Without ``image_dir`` only the
    form of the names is tidied. Returns the images, and one sentence per kind of change.
    """
    tidied = []
    sized = 0
    renamed = 0
    listings: dict[str, set[str]] = {}
    for image in images:
        if isinstance(image, dict):
            name = image.get('file_name')
            new = _tidy_path(name, image_dir, listings)
            renamed += new != name
            image = {**image, 'file_name': new} if new != name else image
            size = None if image_dir is None or _has_size(image) else _size_on_disk(new, image_dir)
            if size is not None:
                image = {**image, 'width': size[0], 'height': size[1]}
                sized += 1
        tidied.append(image)
    changes = [f'filled in width and height of {sized} images from their files'] if sized else []
    return tidied, changes + ([f'tidied {renamed} file names'] if renamed else [])


def tidy_classes(categories: Sequence) -> tuple[list, list[str]]:
    """Categories whose names have single blanks, none at the ends, and composed characters."""
    tidied = []
    count = 0
    for category in categories:
        name = category.get('name') if isinstance(category, dict) else None
        new = normalize('NFC', ' '.join(name.split())) if isinstance(name, str) else name
        count += new != name
        tidied.append({**category, 'name': new} if new != name else category)
    return tidied, [f'tidied {count} class names'] if count else []


def tidy_masks(annotations: Sequence) -> tuple[list, list[str]]:
    """Annotations whose polygons can be drawn: lists of three points or more, of finite numbers.

    One list of numbers becomes a list with one polygon; other shapes are left out.
    """
    tidied = []
    wrapped = 0
    dropped = 0
    for ann in annotations:
        mask = ann.get('segmentation') if isinstance(ann, dict) else None
        if isinstance(mask, list) and mask:
            is_flat = all(map(is_number, mask))
            polygons = [mask] if is_flat else mask
            good = [x for x in polygons if _is_polygon(x)]
            wrapped += is_flat and bool(good)
            dropped += len(polygons) - len(good)
            if good != mask:
                ann = {**ann, 'segmentation': good}
        tidied.append(ann)
    changes = [f'made lists of polygons of {wrapped} masks'] if wrapped else []
    return tidied, changes + ([f'dropped {dropped} polygons without an area'] if dropped else [])


def _is_polygon(points: object) -> bool:
    return (
        isinstance(points, list)
        and len(points) >= 6
        and len(points) % 2 == 0
        and all(is_number(x) and abs(x) <= LARGEST_PIXEL for x in points)
    )


def _has_size(image: dict) -> bool:
    sides = image.get('width'), image.get('height')
    return all(is_number(x) and 0 < x <= LARGEST_PIXEL for x in sides)


def _size_on_disk(name: object, image_dir: str | os.PathLike) -> tuple[int, int] | None:
    if path_fault(name):
        return None
    path = os.path.join(image_dir, str(name))
    try:
        return image_size(path) if os.path.isfile(path) else None
    except ValueError:  # the check names it
        return None


def _tidy_path(
    name: object, image_dir: str | os.PathLike | None, listings: dict[str, set[str]]
) -> object:
    """The path without ``./``; with a folder of images, spelt as it is there."""
    if not isinstance(name, str) or path_fault(name):
        return name
    plain = name.removeprefix('./')
    if image_dir is None or os.path.exists(os.path.join(image_dir, plain)):
        return plain
    folder = os.path.dirname(plain)
    if folder not in listings:
        place = os.path.join(image_dir, folder)
        listings[folder] = set(os.listdir(place)) if os.path.isdir(place) else set()
    found = spelling_on_disk(plain, image_dir, listings[folder])
    return plain if found is None else found[0]
