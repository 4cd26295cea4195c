"""A seeded, COCO-format data set of textured shapes on cluttered ground.

It replaces a real detection set where none can be downloaded: class frequencies have a long tail,
most objects are small, objects occlude each other, and some of the clutter resembles them without
being annotated. Each image draws from a generator seeded by ``(seed, split, index)``, so image 7 of
a split is the same whether 10 or 1,000 images are requested.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track

from mmrank.datasets.synthetic.shape_painting import (
    SHAPES,
    paint_background,
    paint_distractors,
    paint_object,
)
from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.settings import check_at_least, check_within

SPLITS = ('train', 'val', 'test')
_PLACEMENT_TRIES = 20
# An object of which less than this share is visible is painted but not annotated.
_MIN_VISIBLE = 0.35


@dataclass(frozen=True)
class ShapesSpec:
    """Settings of the data set; two equal specs give equal files."""

    num_train: int = 300  # Training images, at least 1
    num_val: int = 100  # Validation images, at least 1
    num_test: int = 100  # Test images; 0 writes no test split
    width: int = 256  # Image width in pixels, at least 64
    height: int = 192  # Image height in pixels, at least 64
    # Classes used, the first so many of :data:`~mmrank.datasets.synthetic.shape_painting.SHAPES`
    num_classes: int = 6
    # How many times more frequent the first class is than the last; frequencies in between fall
    # geometrically. At least 1.
    imbalance: float = 12.0
    mean_objects: float = 6.0  # Mean number of objects in an image that has any
    empty_fraction: float = 0.04  # Share of images with clutter but no object, [0, 1)
    min_size: float = 12.0  # Smallest object diameter in pixels, at least 6
    # Largest object diameter in pixels; sizes are log-uniform in between, so most objects are small
    max_size: float = 128.0
    seed: int = 0  # Non-negative seed of everything above

    def __post_init__(self) -> None:
        check_at_least(1, num_train=self.num_train, num_val=self.num_val)
        check_at_least(0, num_test=self.num_test, seed=self.seed)
        check_at_least(64, width=self.width, height=self.height)
        check_at_least(1, imbalance=self.imbalance, mean_objects=self.mean_objects)
        check_at_least(6, min_size=self.min_size)
        check_within(f'[1, {len(SHAPES)}]', num_classes=self.num_classes)
        check_within('[0, 1)', empty_fraction=self.empty_fraction)
        largest = 0.8 * min(self.width, self.height)
        check_within(f'[{self.min_size}, {largest:g}]', max_size=self.max_size)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, most frequent first."""
        return SHAPES[: self.num_classes]

    @property
    def class_probabilities(self) -> np.ndarray:
        """Long-tailed class probabilities, shape (num_classes,)."""
        steps = np.arange(self.num_classes) / max(1, self.num_classes - 1)
        weights = self.imbalance**-steps
        return weights / weights.sum()


def _render_image(spec: ShapesSpec, split: str, index: int) -> tuple[np.ndarray, list[dict]]:
    rng = np.random.default_rng([spec.seed, SPLITS.index(split), index])
    canvas = paint_background(rng, spec.width, spec.height)
    paint_distractors(rng, canvas, spec.min_size, spec.max_size)
    labels = np.zeros(0, int)
    if rng.random() >= spec.empty_fraction:
        # At most 200 so that an object's number fits the uint8 owner map.
        count = min(200, 1 + rng.poisson(spec.mean_objects - 1))
        labels = rng.choice(spec.num_classes, size=count, p=spec.class_probabilities)
    # 0 is background, i is the i-th object: what is left of i at the end is what can be seen of it.
    owner = np.zeros((spec.height, spec.width), np.uint8)
    full_area = []
    for number, (label, x, y, size) in enumerate(_place(rng, spec, labels), start=1):
        mask = paint_object(rng, canvas, spec.classes[label], x, y, size)
        owner[mask] = number
        full_area.append((number, label, int(mask.sum())))
    noise = rng.normal(0.0, rng.uniform(2.0, 9.0), canvas.shape)
    image = np.clip(canvas + noise, 0, 255).astype(np.uint8)
    objects = []
    for number, label, area in full_area:
        seen = owner == number
        visible = int(seen.sum())
        if visible < max(12, _MIN_VISIBLE * area):
            continue
        rows = np.flatnonzero(seen.any(axis=1))
        cols = np.flatnonzero(seen.any(axis=0))
        width = int(cols[-1] - cols[0] + 1)
        height = int(rows[-1] - rows[0] + 1)
        box = [int(cols[0]), int(rows[0]), width, height]
        objects.append({'category_id': label + 1, 'bbox': box, 'area': visible})
    return image, objects


def write_shapes_coco(
    out_dir: str | os.PathLike, spec: ShapesSpec, console: Console | None = None
) -> dict[str, Path]:
    """Write images and annotation files; a ``console`` shows how far it is."""
    out_dir = Path(out_dir)
    (out_dir / 'annotations').mkdir(parents=True, exist_ok=True)
    files = {}
    for split in SPLITS:
        total = getattr(spec, f'num_{split}')
        if total == 0:
            continue
        (out_dir / split).mkdir(exist_ok=True)
        images = []
        annotations = []
        for index in track(range(total), f'Images, {split}', console=console, transient=True):
            image, objects = _render_image(spec, split, index)
            file_name = f'{index:06d}.jpg'
            path = out_dir / split / file_name
            if not cv2.imwrite(str(path), image):
                what = f'cannot write image {path}: the disk is full, or the folder is read-only'
                raise UserError(what, 'free some disk space, or write to another folder')
            size = dict(width=spec.width, height=spec.height)
            images.append(dict(id=index + 1, file_name=file_name, **size))
            for item in objects:
                place = dict(id=len(annotations) + 1, image_id=index + 1)
                annotations.append({**place, **item, 'iscrowd': 0})
        document = dict(
            info=dict(description=f'mmrank shapes, {split} split, seed {spec.seed}', version='1.0'),
            licenses=[],
            categories=[
                dict(id=i, name=name, supercategory='shape')
                for i, name in enumerate(spec.classes, start=1)
            ],
            images=images,
            annotations=annotations,
        )
        files[split] = out_dir / 'annotations' / f'{split}.json'
        write_atomically(json.dumps(document).encode(), files[split])
    return files


def _place(
    rng: np.random.Generator, spec: ShapesSpec, labels: np.ndarray
) -> Iterator[tuple[int, float, float, float]]:
    """Yield (label, centre x, centre y, diameter), large first, overlapping by 40 % at most."""
    low = np.log(spec.min_size)
    high = np.log(spec.max_size)
    sizes = np.sort(np.exp(rng.uniform(low, high, len(labels))))[::-1]
    placed = np.zeros((0, 3))
    for label, size in zip(labels, sizes):
        for _ in range(_PLACEMENT_TRIES):
            x = rng.uniform(0.35 * size, spec.width - 0.35 * size)
            y = rng.uniform(0.35 * size, spec.height - 0.35 * size)
            distance = np.hypot(placed[:, 0] - x, placed[:, 1] - y)
            overlap = (placed[:, 2] + size) / 2 - distance
            if not (overlap > 0.4 * np.minimum(placed[:, 2], size)).any():
                placed = np.vstack([placed, [x, y, size]])
                yield int(label), x, y, float(size)
                break
