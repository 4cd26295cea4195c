"""Comparison of the annotation files of one config: labels, images and objects."""

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from rich.progress import track

from mmrank.annotations.findings import CocoReport, Problem
from mmrank.annotations.images import read_image
from mmrank.errors import UserError

_SHARED_FIX = (
    'put every image into one split; AP on images that were trained on tells how well the model '
    'remembers.'
)
#: Correlation from which two grey pictures are alike, and how many are compared at a time.
_ALIKE = 0.995
_BLOCK = 256
#: By how much the columns of :func:`_objects_by_image` differ at most in one picture.
_SAME_OBJECTS = np.array([0.5, 0.5] + [0.01] * 8)


class Looks(NamedTuple):
    """What the image files of a split show."""

    contents: list[bytes]  # a digest of each file; empty: unreadable
    grey: np.ndarray  # (images, 1024), each of mean 0 and length 1
    objects: np.ndarray  # (images, 10), see _objects_by_image


class Split(NamedTuple):
    """An annotation file and how a config uses it."""

    where: str  # its place in the config, like train_dataloader.dataset
    image_dir: str
    classes: tuple[str, ...] | None  # those that are trained on, None: all of the file
    report: CocoReport
    is_trained: bool
    looks: Looks | None = None  # by which the same picture is found under another name

    def labels(self) -> list[str]:
        """Class names by label: mmdet numbers them in the order of the file."""
        names = self.report.names.values()
        return [x for x in names if self.classes is None or x in self.classes]

    def paths(self) -> list[str]:
        """Files of the images."""
        folder = os.path.normpath(self.image_dir)
        return [os.path.join(folder, name) for name, *_ in self.report.images.values()]


def compare_labels(splits: Sequence[Split]) -> None:
    """Refuse files whose classes get other labels than in the first: mAP would be of others."""
    for other in splits[1:]:
        first = splits[0]
        for label, (one, two) in enumerate(zip_longest(first.labels(), other.labels())):
            # A split that is evaluated may lack the last classes, if its metainfo says so.
            is_left_out = two is None and other.classes is not None and not other.is_trained
            if one != two and not is_left_out:
                raise UserError(
                    f'the annotation files number the classes differently: label {label} is '
                    f'{one!r} in {first.where} ({first.report.ann_file}) and {two!r} in '
                    f'{other.where} ({other.report.ann_file}). Fix: list the same categories in '
                    "the same order in both files; mmdet numbers labels by the file's order, not "
                    'by metainfo'
                )


def find_shared_images(splits: Sequence[Split]) -> list[tuple[Split, dict[str, str]]]:
    """Add a warning to each other file with images that are trained on; return both."""
    found = {}
    for train in (x for x in splits if x.is_trained):
        for other in (x for x in splits if not x.is_trained):
            shared = shared_images(train, other)
            if shared and other.report.ann_file not in found:
                found[other.report.ann_file] = other, shared
                text = (
                    f'{len(shared)} of {len(other.report.images)} images, such as '
                    f'{name_pairs(shared)}, are in {train.where} and in {other.where}'
                )
                problem = Problem('images in two splits', _SHARED_FIX, False, 1, [text])
                other.report.problems.append(problem)
    return [*found.values()]


def name_pairs(shared: dict[str, str]) -> str:
    """The first three of the files that :func:`shared_images` returns."""
    pairs = sorted(shared.items())[:3]
    return ', '.join(x if x == y else f'{x} = {y}' for x, y in pairs)


def shared_images(train: Split, other: Split) -> dict[str, str]:
    """Files of ``other`` whose picture is in ``train``, too, and as which file.

    By name, and where the images have been looked at by content: equal bytes, or alike in grey with
    the same objects.
    """
    trained = train.paths()
    others = other.paths()
    shared = {path: path for path in {*trained}.intersection(others)}
    if train.looks is None or other.looks is None:
        return shared
    places = {content: i for i, content in enumerate(train.looks.contents) if content}
    found = [places.get(content) for content in other.looks.contents]
    for start in range(0, len(others), _BLOCK):
        alike = train.looks.grey @ other.looks.grey[start : start + _BLOCK].T > _ALIKE
        for column in np.flatnonzero(alike.any(0)):
            rows = np.flatnonzero(alike[:, column])
            gaps = np.abs(train.looks.objects[rows] - other.looks.objects[start + column])
            rows = rows[(gaps < _SAME_OBJECTS).all(1)]
            if found[start + column] is None and len(rows):
                found[start + column] = rows[0]
    return {x: trained[i] for x, i in zip(others, found) if i is not None} | shared


def look_at(split: Split) -> Split:
    """The split with what its image files show."""
    sides = [min(size) for _, *size in split.report.images.values()]
    with ThreadPoolExecutor() as pool:
        looks = pool.map(_look, split.paths(), sides)
        seen = track(looks, 'Images', len(sides), transient=True, disable=len(sides) < 1000)
        contents, pictures = zip(*seen)
    grey = np.array(pictures)
    grey -= grey.mean(1, keepdims=True)
    grey /= np.maximum(np.linalg.norm(grey, axis=1, keepdims=True), 32)  # less is one even colour
    return split._replace(looks=Looks([*contents], grey, _objects_by_image(split.report)))


def _look(path: str, side: int) -> tuple[bytes, np.ndarray]:
    """A digest of a file and its 32 x 32 grey pixels; 0 where it cannot be read."""
    # Large JPEG files are decoded to a quarter, which is faster; PNG files would lose more.
    is_large = side >= 1000 and path.lower().endswith(('.jpg', '.jpeg'))
    flags = cv2.IMREAD_REDUCED_GRAYSCALE_4 if is_large else cv2.IMREAD_GRAYSCALE
    try:
        content = hashlib.blake2b(Path(path).read_bytes()).digest()
        image = read_image(path, flags).astype(np.float32)
    except (OSError, UserError):  # training names it
        return b'', np.zeros(1024, np.float32)
    return content, cv2.resize(image, (32, 32), interpolation=cv2.INTER_AREA).ravel()


def _objects_by_image(report: CocoReport) -> np.ndarray:
    """(images, 10): number of objects, sum of codes of their classes, means of their corners.

    The corners are in sides of the image, and the last four columns are means of their squares.
    """
    columns = report.columns
    codes = np.array([zlib.crc32(name.encode()) for name in report.names.values()], float)
    corners = columns.box / columns.size[:, [0, 1, 0, 1]]
    corners[:, 2:] += corners[:, :2]
    values = np.column_stack([np.ones(len(corners)), codes[columns.label], corners, corners**2])
    sums = np.zeros((len(report.images), values.shape[1]))
    np.add.at(sums, columns.image, values)
    sums[:, 2:] /= np.maximum(sums[:, :1], 1)
    return sums


def difference(evaluated: CocoReport, parts: Sequence[CocoReport]) -> str | None:
    """What the file of an evaluator and those of its data sets do not have in common."""
    images = {}
    for report in parts:
        for image_id in images.keys() & report.images.keys():
            return (
                f'image id {image_id!r} is in several data sets, which are evaluated as one '
                '(a MultiDatasetsEvaluator takes each alone)'
            )
        images |= report.images
    for image_id in {**images, **evaluated.images}:
        one = _entry(images, image_id)
        two = _entry(evaluated.images, image_id)
        if one != two:
            return f'image id {image_id!r} is {two} in it and {one} in the data set'
    objects = Counter(chain(*map(_objects, parts)))
    others = Counter(_objects(evaluated))
    if not objects or not others or objects == others:
        return None
    totals = others.total(), objects.total()
    return '{} objects in it, {} in the data set, or other boxes'.format(*totals)


def _entry(images: dict, image_id: object) -> tuple | str:
    """File name without folders, width and height of an image."""
    if image_id not in images:
        return 'absent'
    name, *size = images[image_id]
    return os.path.basename(name), *size


def _objects(report: CocoReport) -> Iterator[tuple]:
    """Image id, label and box of each object."""
    ids = [*report.images]
    columns = report.columns
    boxes = columns.box.round(2).tolist()
    for image, label, box in zip(columns.image.tolist(), columns.label.tolist(), boxes):
        yield ids[image], label, *box
