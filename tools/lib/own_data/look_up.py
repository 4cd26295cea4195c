"""Which sets on record resemble an annotation file, and which loss won there, without training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.coco_reading import read_coco_json
from mmrank.errors import UserError

#: Written by tools/research/sets_on_record.py from the records of this project.
FILE = Path(__file__).with_name('sets_on_record.json')
#: Two sets resemble each other where each of :data:`NAMES` differs by at most this factor.
FACTOR = 3.0
NAMES = {
    'boxes_an_image': 'boxes an image',
    'classes': 'classes',
    'side': 'size of a box',
    'imbalance': 'imbalance of the classes',
}


@dataclass(frozen=True)
class Counts:
    """Counts of an annotation file.

    Attributes:
        images: Images with a box.
        boxes_an_image: Mean number of boxes of these.
        classes: Classes that have a box.
        side: Median square root of the share of the image that a box covers.
        imbalance: Boxes of the largest class, divided by boxes of the smallest.
    """

    images: int
    boxes_an_image: float
    classes: int
    side: float
    imbalance: float

    def __str__(self) -> str:
        return (
            f'{self.images} images, {self.boxes_an_image:.1f} boxes an image, {self.classes} '
            f'classes, a box of {self.side:.0%} of the side of an image, the largest class '
            f'{self.imbalance:.1f} times the smallest'
        )


def count(path: Path) -> Counts:
    """Counts of a COCO file; crowds are left out."""
    document = read_coco_json(path)
    report = inspect_coco(document, path)
    report.raise_if_bad()
    per_class: dict[int, int] = {}
    per_image: dict[int, int] = {}
    sides = []
    for index, entry in enumerate(document.get('annotations') or []):
        if index in report.bad_annotations or entry.get('iscrowd'):
            continue
        image, label = entry['image_id'], entry['category_id']
        per_image[image] = per_image.get(image, 0) + 1
        per_class[label] = per_class.get(label, 0) + 1
        _, width, height = report.images[image]
        sides.append((entry['bbox'][2] * entry['bbox'][3] / (width * height)) ** 0.5)
    if not sides:
        raise UserError(f'{path} has no box. Fix: the annotation file of the training split')
    return Counts(
        len(per_image),
        round(len(sides) / len(per_image), 2),
        len(per_class),
        round(float(np.median(sides)), 4),
        round(max(per_class.values()) / min(per_class.values()), 2),
    )


def unlike(ours: Counts, theirs: Counts) -> list[str]:
    """The counts of ours that differ by more than :data:`FACTOR`, with the factor."""
    found = []
    for key, name in NAMES.items():
        ratio = getattr(ours, key) / getattr(theirs, key)
        if not 1 / FACTOR <= ratio <= FACTOR:
            text = f'{ratio:.1f} times larger' if ratio > 1 else f'{1 / ratio:.1f} times smaller'
            found.append(f'{name} {text}')
    return found


def look_up(path: Path) -> str:
    """The answer for an annotation file, in lines of plain text."""
    ours = count(path)
    alike, others = [], []
    for entry in json.loads(FILE.read_text(encoding='utf-8')).values():
        theirs = Counts(**entry['counts'])
        if reasons := unlike(ours, theirs):
            others.append(f'Unlike {entry["title"]}: {", ".join(reasons)}.')
        else:
            alike.append(f'Resembles {entry["title"]}: {theirs}.')
            alike += [f'  {_won(found)}' for found in entry['found']]
    if alike:
        end = 'A set that resembles yours is a hint. To measure: '
    else:
        end = 'Unlike all sets on record: none of them tells which loss to take. Measure: '
    end += 'python tools/compare_losses.py CONFIG --budget 20m'
    return '\n'.join([f'{path}: {ours}.', *alike, *others, end])


def _won(found: Mapping) -> str:
    """A line for a record: the best loss, and how far the next and the stock one are behind."""
    text = f'{found["what"]}, {found["seeds"]} seeds: {found["best"]} {found["mean"]:.2f} mAP'
    text += f', the best of {found["methods"]}'
    for kind in ('next', 'stock'):
        if other := found.get(kind):
            low, high = other['interval']
            verb = 'level with' if low <= 0 <= high else 'ahead of'
            text += f'; {verb} {other["name"]}, {other["difference"]:+.2f} '
            text += f'[{low:+.2f}, {high:+.2f}]'
    return text
