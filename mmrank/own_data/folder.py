"""Finds the splits of a folder, and reads what a config needs of them."""

import json
import os
import posixpath
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmrank.annotations.check import inspect_coco, is_size
from mmrank.annotations.clean import tidy_image
from mmrank.annotations.documents import renumber_classes
from mmrank.annotations.findings import CocoReport
from mmrank.annotations.read import read_coco_json
from mmrank.errors import UserError
from mmrank.files import find_files, write_atomically
from mmrank.own_data.labels import WORDS, read_labels, split_of

_VAL_FIX = '--val-fraction 0.2 takes a fifth of the training images'


class Split(NamedTuple):
    """One annotation file with its images."""

    ann_file: Path
    image_dir: Path  # names of images start here
    report: CocoReport
    sizes: np.ndarray  # (images, 2) width and height of each image
    boxes: np.ndarray  # (n, 2) width and height of each object in pixels
    classes: np.ndarray  # (n,) name of the class of each object
    per_image: int  # largest number of objects in one image


def find_splits(
    form: str,
    folder: str | os.PathLike,
    work_dir: str | os.PathLike,
    classes: Sequence[str] = (),
    fraction: float | None = None,
    **given: str | None,
) -> dict[str, Split]:
    """Read train, val and, where it is there, test of a folder; ``given`` has files by split.

    What is in no file of the folder is written below ``work_dir``: labels of another form than
    ``'coco'``, ``classes`` alone, missing sizes, a ``fraction`` of the images for validation.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = f'--{form} {folder} is not a folder'
        fix = 'the folder of the data set, which holds annotations or labels and the images'
        raise UserError(what, fix)
    copies = {name: Path(work_dir, 'annotations', f'{name}.json') for name in WORDS}
    files = {name: (path, None) for name, path in copies.items()}
    labels = {} if form == 'coco' else read_labels(folder, form)
    documents = {}
    for name in WORDS if fraction is None else ('train', 'test'):
        path = given.get(name) or (find_file(folder, name) if form == 'coco' else None)
        if path is not None:
            documents[name] = read_coco_json(path)
            files[name] = Path(path), documents[name]
            images = _images(documents[name])
            if not all(is_size(x.get('width'), x.get('height')) for x in images):
                # They come from the images that are found.
                image_dir = find_images(documents[name], Path(path), folder, name)
                for image in images:
                    tidy_image(image, image_dir)
                documents[name] = dict(documents[name], images=images)
        elif name in labels:
            documents[name] = labels[name]
        elif name != 'test':
            fix = _VAL_FIX if name == 'val' else 'a folder or a list, named train, that is there'
            raise UserError(f'--{form} {folder} has no image with labels for {name}', fix)
    if classes or fraction is not None:
        for name, document in documents.items():
            _inspect(document, files[name][0], name)
            documents[name] = _with_classes(document, files[name][0], classes)
    if fraction is not None:
        documents = _split_images(documents.pop('train'), fraction) | documents
    splits = {}
    for name, document in documents.items():
        path, content = files[name]
        if document is not content:
            path = copies[name]
            write_atomically(json.dumps(document).encode(), path)
        splits[name] = _read_split(document, path, folder, name)
    if 'test' in splits and not len(splits['test'].boxes):
        del splits['test']  # made for a server, which has the boxes
    return splits


def _inspect(document: dict, path: Path, name: str) -> CocoReport:
    report = inspect_coco(document, path, require_annotations=name != 'test')
    report.raise_if_bad()
    return report


def _images(document: dict) -> list[dict]:
    """Copies of the images of a document that is not checked."""
    images = document.get('images')
    return [dict(x) for x in images if isinstance(x, dict)] if isinstance(images, list) else []


def _with_classes(document: dict, path: Path, classes: Sequence[str]) -> dict:
    """The document with these classes alone, if any are given; every image stays."""
    names = {x['id']: x['name'] for x in document['categories']}
    for name in set(classes).difference(names.values()):
        near = get_close_matches(name, names.values(), 1) or ['one of these']
        shown = ', '.join(names.values())
        raise UserError(f'--classes {name} is not in {path}: {shown:.200}', near[0])
    if not classes:
        return document
    kept = {number: number for number, name in names.items() if name in classes}
    return dict(
        document,
        images=[renumber_classes(x, kept) for x in document['images']],
        annotations=[x for x in document.get('annotations', ()) if x['category_id'] in kept],
        categories=[x for x in document['categories'] if x['id'] in kept],
    )


def _split_images(document: dict, fraction: float) -> dict[str, dict]:
    """The documents of training and, with a fraction of the images, of validation."""
    ids = [image['id'] for image in document['images']]
    number = round(fraction * len(ids))
    if not 0 < number < len(ids):
        what = f'--val-fraction {fraction} of {len(ids)} images leaves a part empty'
        raise UserError(what, '--val-fraction 0.2, or more images')
    order = [ids[i] for i in np.random.default_rng(0).permutation(len(ids))]
    parts = {'train': {*order[number:]}, 'val': {*order[:number]}}
    return {name: with_images(document, own) for name, own in parts.items()}


def with_images(document: dict, ids: Collection) -> dict:
    """The document with the images of these ids alone."""
    return dict(
        document,
        images=[x for x in document['images'] if x['id'] in ids],
        annotations=[x for x in document['annotations'] if x['image_id'] in ids],
    )


def find_file(folder: Path, name: str) -> Path | None:
    """The annotation file of a split; None only for a test split."""
    names = [x for x in find_files(folder, ('.json',))[0] if x.count('/') < 2]
    there = [folder / x for x in names if not posixpath.basename(x).startswith('image_info')]
    found = [path for path in there if split_of(path.relative_to(folder)) == name]
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
    fix = _VAL_FIX if name == 'val' and there else '--yolo and --voc read other labels'
    raise UserError(
        f'{folder} has no annotation file for {name} (there is: {shown}).\n  Fix: put it at '
        f'{folder / "annotations" / name}.json, or pass --{name} FILE; {fix}'
    )


def _read_split(document: dict, path: Path, folder: Path, name: str) -> Split:
    """What a config needs of a document, and its images below the folder."""
    report = _inspect(document, path, name)
    if not report.images:
        raise UserError(f'{path} has no image.\n  Fix: the annotation file of the {name} split')
    columns = report.columns
    is_object = columns.crowd == 0
    if not is_object.any() and name != 'test':
        what = f'{path} has no box: {report.num_images} images, 0 objects'
        raise UserError(what, f'the file with the boxes of the {name} split, as --{name} FILE')
    return Split(
        path,
        find_images(document, path, folder, name),
        report,
        np.array([size for _, *size in report.images.values()]),
        columns.box[is_object, 2:],
        np.array([*report.names.values()])[columns.label[is_object]],
        int(np.bincount(columns.image[is_object], minlength=1).max()),
    )


def find_images(document: dict, path: Path, folder: Path, name: str | None) -> Path:
    """The folder that holds the first, a middle and the last image of a file of a split."""
    named = [x.get('file_name') or x.get('coco_url') for x in _images(document)]
    names = [x for x in named if isinstance(x, str)]
    if not names or os.path.isabs(names[0]):
        return folder
    probes = [names[0], names[len(names) // 2], names[-1]]
    # Also links to folders, which are not followed further.
    places = {Path(place, x) for place, inner, _ in os.walk(folder) for x in ['.', *inner]}
    found = sorted(x for x in places if all((x / probe).is_file() for probe in probes))
    if not found:
        raise UserError(
            f'the images of {path} are not below {folder}: no folder there leads to {names[0]!r}.\n'
            '  Fix: the folder that holds annotations and images'
        )
    named = [x for x in found if split_of(x.relative_to(folder)) == name] if found[1:] else found
    if len(named) != 1:
        what = f'{names[0]!r} of {path} is in {len(found)} folders'
        fix = f'put the folder into file_name, or name it {name}'
        raise UserError(f'{what}: {", ".join(map(str, found[:4]))}', fix)
    return named[0]
