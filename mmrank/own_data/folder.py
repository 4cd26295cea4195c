"""Finds the splits of a folder in COCO's format, and reads what a config needs of them."""

import json
import os
import posixpath
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmrank.annotations.check import read_checked
from mmrank.annotations.report import CocoReport
from mmrank.errors import UserError
from mmrank.files import find_files, write_atomically

#: Words by which a file, or its folder, names its split.
_WORDS = {
    'train': {'train', 'training'},
    'val': {'val', 'valid', 'validation'},
    'test': {'test', 'testing'},
}


class Split(NamedTuple):
    """One annotation file with its images."""

    ann_file: Path
    image_dir: Path  # names of images start here
    report: CocoReport
    sizes: np.ndarray  # (images, 2) width and height of each image
    boxes: np.ndarray  # (n, 2) width and height of each object in pixels
    classes: np.ndarray  # (n,) name of the class of each object
    per_image: int  # largest number of objects in one image


def find_splits(folder: str | os.PathLike, **given: str | None) -> dict[str, Split]:
    """Read train, val and, where it is there, test of a folder; ``given`` has files by split."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            f'--coco {folder} is not a folder.\n  Fix: the folder of the data set, which holds '
            'annotations/ and the images'
        )
    splits = {}
    for name in _WORDS:
        path = Path(given[name]) if given.get(name) else find_file(folder, name)
        if path is not None:
            splits[name] = _read_split(path, folder, name)
    if 'test' in splits and not len(splits['test'].boxes):
        del splits['test']  # made for a server, which has the boxes
    return splits


def split_file(path: Path, fraction: float, stem: Path) -> tuple[str, str]:
    """Write an annotation file as ``STEM_train.json`` and, with a share, ``STEM_val.json``."""
    document, _ = read_checked(path)
    ids = [image['id'] for image in document['images']]
    number = round(fraction * len(ids))
    if not 0 < number < len(ids):
        what = f'--val-fraction {fraction} of {len(ids)} images leaves a part empty'
        raise UserError(what, '--val-fraction 0.2, or more images')
    chosen = {ids[i] for i in np.random.default_rng(0).permutation(len(ids))[:number]}
    parts = {'train': {*ids} - chosen, 'val': chosen}
    for name, own in parts.items():
        part = dict(
            document,
            images=[x for x in document['images'] if x['id'] in own],
            annotations=[x for x in document['annotations'] if x['image_id'] in own],
        )
        write_atomically(json.dumps(part).encode(), f'{stem}_{name}.json')
    return f'{stem}_train.json', f'{stem}_val.json'


def find_file(folder: Path, name: str) -> Path | None:
    """The annotation file of a split; None only for a test split."""
    names = [x for x in find_files(folder, ('.json',))[0] if x.count('/') < 2]
    there = [folder / x for x in names if not posixpath.basename(x).startswith('image_info')]
    found = [path for path in there if _split_of(path.relative_to(folder)) == name]
    # COCO's own folder also holds captions and key points.
    found = [x for x in found if x.name.startswith('instances')] or found
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        shown = ', '.join(str(path) for path in found[:4])
        what = f'{folder} has {len(found)} annotation files for {name}: {shown}'
        raise UserError(what, f'--{name} FILE with the one to use')
    if name == 'test':
        return None
    shown = ', '.join(str(path.relative_to(folder)) for path in there[:4]) or 'no JSON file'
    fix = 'labels of YOLO, VOC or CSV become one by mmrank convert'
    if name == 'val' and there:
        fix = '--val-fraction 0.2 takes a fifth of the images of the training file'
    raise UserError(
        f'{folder} has no annotation file for {name} (there is: {shown}).\n  Fix: put it at '
        f'{folder / "annotations" / name}.json, or pass --{name} FILE; {fix}'
    )


def _split_of(path: Path) -> str | None:
    """The split that a file or folder names, or else the folder that it is in."""
    for text in (path.stem, path.parent.name):
        words = {*re.split('[^a-z]+', text.lower())}
        found = [name for name, own in _WORDS.items() if words & own]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _read_split(path: Path, folder: Path, name: str) -> Split:
    """Read an annotation file and find its images below the folder."""
    _, report = read_checked(path, require_annotations=name != 'test')
    if not report.images:
        raise UserError(f'{path} has no image.\n  Fix: the annotation file of the {name} split')
    columns = report.columns
    is_object = columns.crowd == 0
    if not is_object.any() and name != 'test':
        raise UserError(
            f'{path} has no box: {report.num_images} images, 0 objects.\n  Fix: the file with the '
            f'boxes of the {name} split, as --{name} FILE'
        )
    return Split(
        path,
        _find_images(path, folder, name, report),
        report,
        np.array([size for _, *size in report.images.values()]),
        columns.box[is_object, 2:],
        np.array([*report.names.values()])[columns.label[is_object]],
        int(np.bincount(columns.image[is_object], minlength=1).max()),
    )


def _find_images(path: Path, folder: Path, name: str, report: CocoReport) -> Path:
    """The folder that holds the first, a middle and the last image of a file."""
    names = [file_name for file_name, _, _ in report.images.values()]
    if os.path.isabs(names[0]):
        return folder
    probes = [names[0], names[len(names) // 2], names[-1]]
    # Also links to folders, which are not followed further.
    places = {Path(place, x) for place, inner, _ in os.walk(folder) for x in ['.', *inner]}
    found = sorted(x for x in places if all((x / probe).is_file() for probe in probes))
    if not found:
        raise UserError(
            f'the images of {path} are not below {folder}: no folder there leads to {names[0]!r}.\n'
            '  Fix: --coco with the folder that holds annotations and images'
        )
    named = [x for x in found if _split_of(x.relative_to(folder)) == name] if found[1:] else found
    if len(named) != 1:
        raise UserError(
            f'{names[0]!r} of {path} is in {len(found)} folders: '
            f'{", ".join(map(str, found[:4]))}.\n  Fix: put the folder into file_name, or name it '
            f'{name}'
        )
    return named[0]
