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

from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.settings import check_at_least, check_within

SPLITS = ('train', 'val', 'test')
SHAPES = ('disk', 'square', 'triangle', 'star', 'ring', 'cross', 'hexagon', 'crescent')
# Sub-pixel positions for cv2.fillPoly: coordinates carry 4 fractional bits.
_SHIFT = 4
# A pixel belongs to a shape where its anti-aliased cover is at least half.
_HALF_COVER = 0.5
# OpenCV's hue circle. Each class has a typical hue with a spread of half the step between classes:
# colour helps, as it does in the wild, but neighbours overlap and clutter comes in all hues.
_HUES = 180
_HUE_SPREAD = 11.0
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
    # Classes used, the first so many of :data:`SHAPES`
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


def paint_background(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Paint a coloured gradient with low-frequency blotches."""
    # Mostly grey: a dull ground under colourful objects, as in the wild.
    corners = rng.uniform(60, 190, (2, 2, 1)) + rng.normal(0, 10, (2, 2, 3))
    canvas = cv2.resize(corners.astype(np.float32), (width, height))
    for cells in (4, 12):
        blotches = rng.normal(0, 10, (cells, cells, 1))
        blotches = (blotches + rng.normal(0, 5, (cells, cells, 3))).astype(np.float32)
        canvas += cv2.resize(blotches, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(canvas, 0, 255)


def paint_distractors(
    rng: np.random.Generator, canvas: np.ndarray, min_size: float, max_size: float
) -> None:
    """Paint clutter like the objects but for the outline, without annotations."""
    height, width = canvas.shape[:2]
    for _ in range(rng.integers(2, 6)):
        size = np.exp(rng.uniform(np.log(min_size), np.log(max_size)))
        x = rng.uniform(0, width)
        y = rng.uniform(0, height)
        is_blob = rng.random() < 0.6
        if is_blob:
            outline = _polygon(9) * rng.uniform(0.4, 1.0, (9, 1))
        else:
            thin = rng.uniform(0.12, 0.3)
            corners = np.array([[1, thin], [-1, thin], [-1, -thin], [1, -thin]])
            outline = _rotate(corners, rng.uniform(0, np.pi))
        hue = rng.uniform(0, _HUES)
        _paint_outlines(rng, canvas, [(outline, 1)], x, y, size, hue)
    for _ in range(rng.integers(1, 4)):
        start = tuple(int(v) for v in rng.uniform(0, [width, height]))
        colour = tuple(float(v) for v in _colour(rng, rng.uniform(0, _HUES)))
        if rng.random() < 0.5:
            end = tuple(int(v) for v in rng.uniform(0, [width, height]))
            thickness = int(rng.integers(1, 4))
            cv2.line(canvas, start, end, colour, thickness, cv2.LINE_AA)
        else:
            letter = 'AEFGHKMNPRSWZ'[rng.integers(13)]
            scale = float(rng.uniform(0.5, 1.4))
            font = cv2.FONT_HERSHEY_SIMPLEX
            # OpenCV 5 writes on 8 bits alone.
            written = np.zeros((height, width), np.uint8)
            cv2.putText(written, letter, start, font, scale, 255, 2, cv2.LINE_8)
            canvas[written > 0] = colour


def paint_object(
    rng: np.random.Generator, canvas: np.ndarray, shape: str, x: float, y: float, size: float
) -> np.ndarray:
    """Paint one object with a random rotation, colour and texture."""
    angle = rng.uniform(0, 2 * np.pi)
    parts = [(_rotate(part, angle), sign) for part, sign in _parts(shape)]
    hue = SHAPES.index(shape) * _HUES / len(SHAPES)
    hue = rng.normal(hue, _HUE_SPREAD)
    window, cover = _paint_outlines(rng, canvas, parts, x, y, size, hue)
    mask = np.zeros(canvas.shape[:2], bool)
    mask[window] = cover >= _HALF_COVER
    return mask


def _parts(shape: str) -> list[tuple[np.ndarray, int]]:
    """Outlines in the unit circle; sign -1 cuts a part out again."""
    if shape == 'ring':
        return [(_polygon(48), 1), (0.58 * _polygon(48), -1)]
    if shape == 'crescent':
        return [(_polygon(48), 1), (0.8 * _polygon(48) + [0.45, 0], -1)]
    if shape == 'star':
        points = _polygon(10)
        points[1::2] *= 0.42
        return [(points, 1)]
    if shape == 'cross':
        arm = 0.32
        quarter = np.array([[arm, 0.95], [arm, arm], [0.95, arm]])
        turns = [_rotate(quarter, -k * np.pi / 2) for k in range(4)]
        return [(np.concatenate(turns), 1)]
    corners = {'disk': 48, 'square': 4, 'triangle': 3, 'hexagon': 6}
    return [(_polygon(corners[shape]), 1)]


def _polygon(corners: int) -> np.ndarray:
    """Corners of a regular polygon in the unit circle, (corners, 2)."""
    turn = np.arange(corners) * 2 * np.pi / corners
    return np.stack([np.cos(turn), np.sin(turn)], axis=1)


def _rotate(points: np.ndarray, angle: float) -> np.ndarray:
    cos = np.cos(angle)
    sin = np.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def _paint_outlines(
    rng: np.random.Generator,
    canvas: np.ndarray,
    parts: list[tuple[np.ndarray, int]],
    x: float,
    y: float,
    size: float,
    hue: float,
) -> tuple[tuple[slice, slice], np.ndarray]:
    """Paint outlines and return their window and cover within it."""
    # Only the window around the shape is touched: with many small objects
    # this is what makes the generator fast.
    height, width = canvas.shape[:2]
    reach = size / 2 + 2
    left = max(0, int(x - reach))
    top = max(0, int(y - reach))
    right = min(width, int(x + reach) + 1)
    bottom = min(height, int(y + reach) + 1)
    window = (slice(top, bottom), slice(left, right))
    x = x - left
    y = y - top
    # Anti-aliased.
    cover = np.zeros((bottom - top, right - left), np.uint8)
    for outline, sign in parts:
        points = outline * (size / 2) + [x, y]
        fixed = np.round(points * (1 << _SHIFT)).astype(np.int32)
        cv2.fillPoly(cover, [fixed], 255 if sign > 0 else 0, cv2.LINE_AA, _SHIFT)
    cover = cover.astype(np.float32) / 255
    # A colour unlike the ground, and a darker one.
    part = canvas[window]
    covered = cover >= _HALF_COVER
    ground = part[covered].mean(axis=0) if covered.any() else part[0, 0]
    first = _colour(rng, hue)
    while np.abs(first - ground).max() < 60:
        first = _colour(rng, hue)
    second = first * rng.uniform(0.45, 0.8)
    # The texture mixes both.
    angle = rng.uniform(0, np.pi)
    period = max(4.0, size / rng.uniform(2.5, 5.0))
    rows, cols = np.mgrid[0 : bottom - top, 0 : right - left].astype(np.float32)
    u = (cols - x) * np.cos(angle) + (rows - y) * np.sin(angle)
    v = (rows - y) * np.cos(angle) - (cols - x) * np.sin(angle)
    kind = rng.integers(4)
    mix = np.zeros_like(rows)
    if kind == 0:
        mix = np.clip(0.5 + u / size, 0, 1) * 0.5
    elif kind == 1:
        mix = np.sin(2 * np.pi * u / period) > 0
    elif kind == 2:
        mix = np.sin(2 * np.pi * u / period) * np.sin(2 * np.pi * v / period) > 0
    mix = mix.astype(np.float32)[..., None]
    alpha = cover[..., None]
    part *= 1 - alpha
    part += alpha * (first * (1 - mix) + second.astype(np.float32) * mix)
    return window, cover


def _colour(rng: np.random.Generator, hue: float) -> np.ndarray:
    """A saturated BGR colour in [0, 255] of the given OpenCV hue."""
    saturation = rng.integers(100, 256)
    value = rng.integers(70, 256)
    hsv = np.uint8([[[hue % _HUES, saturation, value]]])
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)[0, 0].astype(np.float32)
