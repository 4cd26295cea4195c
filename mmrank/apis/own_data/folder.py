"""Finds the splits of a folder in COCO's format, and reads what a config needs of them."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmrank.datasets.checks.coco_inspect import read_checked
from mmrank.datasets.checks.coco_report import CocoReport
from mmrank.errors import UserError

#: Words by which a file, or its folder, names its split.
WORDS = {
    'train': re.compile(r'train', re.IGNORECASE),
    'val': re.compile(r'val', re.IGNORECASE),
    'test': re.compile(r'test', re.IGNORECASE),
}


@dataclass
class Split:
    """One annotation file with its images.

    Attributes:
        ann_file: The file.
        image_dir: Folder from which the names of the images lead to them.
        report: Classes, counts and problems.
        boxes: (n, 2) width and height of each object in pixels, float64.
        classes: (n,) name of the class of each object.
        per_image: Largest number of objects in one image.
    """

    ann_file: Path
    image_dir: Path
    report: CocoReport
    boxes: np.ndarray
    classes: np.ndarray
    per_image: int

    @property
    def sizes(self) -> np.ndarray:
        """(images, 2) width and height of each image, int64."""
        found = [(width, height) for _, width, height in self.report.images.values()]
        return np.array(found)


def find_splits(folder: str | os.PathLike, **given: str | None) -> dict[str, Split]:
    """Read train, val and, where it is there, test of a folder.

    Args:
        folder: Folder of the data set.
        **given: Annotation file of a split; None looks for it in the folder.

    Raises:
        UserError: If the folder, a file, its images or its boxes are not there.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            f'--coco {folder} is not a folder.\n  Fix: the folder of the data set, which holds '
            'annotations/ and the images'
        )
    splits = {}
    for name in WORDS:
        path = Path(given[name]) if given.get(name) else _find_file(folder, name)
        if path is not None:
            splits[name] = read_split(path, folder, name)
    if 'test' in splits and not len(splits['test'].boxes):
        del splits['test']  # made for a server, which has the boxes
    return splits


def _find_file(folder: Path, name: str) -> Path | None:
    """The annotation file of a split; None only for a test split."""
    there = [*folder.glob('*.json'), *folder.glob('*/*.json')]
    there = sorted(path for path in there if not path.name.startswith('image_info'))
    found = [path for path in there if _split_of(path) == name]
    # COCO's own folder also holds captions and key points.
    found = [x for x in found if x.name.startswith('instances')] or found
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        shown = ', '.join(str(path) for path in found[:4])
        raise UserError(
            f'{folder} has {len(found)} annotation files for {name}: {shown}.\n  Fix: '
            f'--{name} FILE with the one to use'
        )
    if name == 'test':
        return None
    shown = ', '.join(str(path.relative_to(folder)) for path in there[:4]) or 'no JSON file'
    raise UserError(
        f'{folder} has no annotation file for {name} (there is: {shown}).\n  Fix: put it at '
        f'{folder / "annotations" / name}.json, or pass --{name} FILE; labels of YOLO, VOC or CSV '
        'become one by mmrank convert'
    )


def _split_of(path: Path) -> str | None:
    """The split that the name of a file says or, where it says none, the name of its folder."""
    for text in (path.stem, path.parent.name):
        for name, word in WORDS.items():
            if word.search(text):
                return name
    return None


def read_split(path: Path, folder: Path, name: str) -> Split:
    """Read an annotation file and find its images below the folder."""
    document, report = read_checked(path, require_annotations=name != 'test')
    if not report.images:
        raise UserError(f'{path} has no image.\n  Fix: the annotation file of the {name} split')
    entries = [
        entry
        for index, entry in enumerate(document.get('annotations') or [])
        if index not in report.bad_annotations and not entry.get('iscrowd')
    ]
    if not entries and name != 'test':
        raise UserError(
            f'{path} has no box: {report.num_images} images, 0 objects.\n  Fix: the file with the '
            f'boxes of the {name} split, as --{name} FILE'
        )
    per_image: dict = {}
    for entry in entries:
        per_image[entry['image_id']] = per_image.get(entry['image_id'], 0) + 1
    return Split(
        path,
        _find_images(path, folder, name, report),
        report,
        np.array([entry['bbox'][2:] for entry in entries], dtype=np.float64).reshape(-1, 2),
        np.array([report.names[entry['category_id']] for entry in entries]),
        max(per_image.values(), default=0),
    )


def _folders(folder: Path) -> list[Path]:
    """The folder and all below it, also behind links, each once."""
    found = []
    seen = set()
    for place, names, _ in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            names.clear()  # a link that leads back
            continue
        seen.add(real)
        found.append(Path(place))
    return found


def _find_images(path: Path, folder: Path, name: str, report: CocoReport) -> Path:
    """The folder that holds the first, a middle and the last image of a file."""
    names = [file_name for file_name, _, _ in report.images.values()]
    probes = [names[0], names[len(names) // 2], names[-1]]
    found = [x for x in _folders(folder) if all((x / probe).is_file() for probe in probes)]
    if not found:
        raise UserError(
            f'the images of {path} are not below {folder}: no folder there leads to {names[0]!r}.\n'
            '  Fix: --coco with the folder that holds annotations and images'
        )
    # Of several, the one that is named after the split.
    return min(found, key=lambda place: (not WORDS[name].search(str(place)), len(place.parts)))
