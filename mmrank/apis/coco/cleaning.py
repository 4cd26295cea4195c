"""A copy of a COCO document without what makes it unusable."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from unicodedata import normalize

from mmrank.apis.coco.merging import renumber_classes
from mmrank.datasets.checks.coco_annotations import LARGEST_PIXEL, is_number_id, is_polygon
from mmrank.datasets.checks.coco_images import spelling_on_disk
from mmrank.datasets.checks.coco_inspect import inspect_coco, is_size
from mmrank.datasets.checks.data_report import is_id, is_number, shown
from mmrank.datasets.image_header import image_size
from mmrank.errors import UserError
from mmrank.files import path_fault

_PARTS = ('images', 'categories', 'annotations')


def clean_coco(
    document: dict, image_dir: str | os.PathLike | None = None
) -> tuple[dict, list[str]]:
    """Drop or complete what makes a COCO document unusable; one sentence per kind of change.

    Names and polygons are tidied; from the pictures in ``image_dir`` missing sizes are filled in.

    What cannot be known is dropped and counted, never guessed: pictures or classes that share an
    id, and their annotations. A ``UserError`` if nothing would be left, or another error.
    """
    for key in _PARTS:
        if not isinstance(document.get(key), list):
            raise UserError(
                f'the document cannot be cleaned: {key!r} is {shown(document.get(key))}, not a '
                'list. Fix: export the file again as COCO'
            )
    images = [_copied(_tidy_image, x, image_dir) for x in document['images']]
    categories = [_copied(_tidy_class, x) for x in document['categories']]
    annotations = [_copied(_tidy_annotation, x) for x in document['annotations']]
    image_ids = _new_ids(images)
    class_ids = _new_ids(categories, merges_names=True)
    for ann in annotations:
        _refer(ann, 'image_id', image_ids)
        _refer(ann, 'category_id', class_ids)
    _renumber(annotations)
    cleaned = dict(
        images=_one_of_each_id(images, image_ids),
        categories=_one_of_each_id(categories, class_ids),
        annotations=annotations,
    )
    kinds = _drop_bad(cleaned)
    _renumber_lists(cleaned, class_ids)
    changes = [x for key in _PARTS for x in _changes(key, document[key], cleaned[key])]
    shared = [x for ids in (image_ids, class_ids) for x, new in ids.items() if new is None]
    if shared:
        changes.append(f'ids of several images or categories, and so of none: {shown(shared)}')
    if kinds:
        text = ', '.join(f'{kind} ({count})' for kind, count in kinds.items())
        changes.append(f'dropped was what had: {text}')
    for key in _PARTS:
        cleaned[key] = [x for x in cleaned[key] if x]
        if document[key] and not cleaned[key]:
            raise UserError(
                f'the document cannot be cleaned: none of its {len(document[key])} {key} would be '
                f'left ({"; ".join(changes)}). Fix: correct what the findings name, with --images '
                'if sizes are missing, or export the file again'
            )
    cleaned = {**document, **cleaned}
    report = inspect_coco(cleaned, 'the cleaned copy')
    if not report.ok:
        raise UserError(f'{report.describe(report.errors)}\nNothing was written')
    return cleaned, changes


def _copied(tidy: Callable[..., dict], entry: object, *args: object) -> dict:
    return tidy(dict(entry), *args) if isinstance(entry, dict) else {}


def _tidy_image(image: dict, image_dir: str | os.PathLike | None) -> dict:
    """The file name as it is on the disk, and a size where there is none."""
    name = image.get('file_name')
    if path_fault(name):
        return image
    image['file_name'] = name = name.removeprefix('./')
    if image_dir is None:
        return image
    if not os.path.exists(os.path.join(image_dir, name)):
        folder = os.path.join(image_dir, os.path.dirname(name))
        listing = os.listdir(folder) if os.path.isdir(folder) else ()
        image['file_name'] = name = spelling_on_disk(name, image_dir, listing) or name
    path = os.path.join(image_dir, name)
    if not is_size(image.get('width'), image.get('height')) and os.path.isfile(path):
        with suppress(ValueError):  # the check names it
            image['width'], image['height'] = image_size(path)
    return image


def _tidy_class(category: dict) -> dict:
    """A name with single blanks, none at the ends, and composed characters."""
    name = category.get('name')
    if isinstance(name, str):
        category['name'] = normalize('NFC', ' '.join(name.split()))
    return category


def _tidy_annotation(ann: dict) -> dict:
    """With polygons that can be drawn, and ``area`` and ``iscrowd`` where they can be derived."""
    mask = ann.get('segmentation')
    if isinstance(mask, list):
        polygons = [mask] if all(map(is_number, mask)) else mask
        ann['segmentation'] = [x for x in polygons if is_polygon(x)]
    box = ann.get('bbox')
    is_box = isinstance(box, list) and len(box) == 4
    if is_box and all(is_number(x) and abs(x) <= LARGEST_PIXEL for x in box):
        area = ann.get('area')
        if not is_number(area) or not 0 < area <= LARGEST_PIXEL**2:
            ann['area'] = box[2] * box[3]
    if ann.get('iscrowd') not in (0, 1):
        ann['iscrowd'] = 0
    return ann


def _whole(value: object) -> object:
    """The integer that a float or a text is, else the value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value) if str(int(value)) == value else value
    return value


def _new_ids(entries: list[dict], merges_names: bool = False) -> dict:
    """By the id of the file, also in another type, the one of the copy.

    None where different entries share it. Entries that differ in their ids alone become one if
    ``merges_names``.
    """
    by_id = defaultdict(list)
    for entry in entries:
        if is_id(_whole(entry.get('id'))):
            by_id[entry['id']].append(entry)
    shared = [x for x, own in by_id.items() if any(own[0] != y for y in own)]
    ids = [x for x in by_id if x not in shared]
    whole = [_whole(x) for x in ids]
    new = range(1, len(ids) + 1)
    if len(set(whole)) == len(ids) and all(map(is_number_id, whole)):
        new = whole
    elif all(isinstance(x, str) for x in ids):
        new = ids
    found = {**dict.fromkeys(shared), **dict(zip(ids, new))}
    first: dict[str, object] = {}
    for old in ids if merges_names else ():
        name = str(by_id[old][0].get('name'))
        other = first.setdefault(name, old)
        if {**by_id[old][0], 'id': None} == {**by_id[other][0], 'id': None}:
            found[old] = found[other]
    counts = Counter(map(_whole, found))
    return {_whole(x): y for x, y in found.items() if counts[_whole(x)] == 1} | found


def _one_of_each_id(entries: list[dict], ids: dict) -> list[dict]:
    """Entries with their new ids; an empty one keeps the place of one that is left out."""
    kept = []
    seen = {None}
    for entry in entries:
        number = entry.get('id')
        new = ids[number] if is_id(_whole(number)) else None
        kept.append({} if new in seen else {**entry, 'id': new})
        seen.add(new)
    return kept


def _refer(ann: dict, key: str, ids: dict) -> None:
    """Name the new id, where it is clear which one is meant; else None."""
    old = ann.get(key)
    if not is_id(_whole(old)):
        return
    ann[key] = ids.get(old, ids.get(_whole(old)))


def _renumber(annotations: list[dict]) -> None:
    ids = [x.get('id') for x in annotations if x]
    if all(map(is_number_id, ids)) and len(set(ids)) == len(ids):
        return
    for number, ann in enumerate(filter(None, annotations), 1):
        ann['id'] = number


def _renumber_lists(cleaned: dict, class_ids: dict) -> None:
    """LVIS lists of images name the new classes, without those that have an object."""
    present = defaultdict(set)
    for ann in filter(None, cleaned['annotations']):
        present[ann['image_id']].add(ann['category_id'])
    cleaned['images'] = [
        renumber_classes(x, class_ids, present[x['id']]) if x else x for x in cleaned['images']
    ]


def _drop_bad(cleaned: dict) -> Counter:
    """Leave out images and annotations with an error; the kinds of errors."""
    kinds: Counter = Counter()
    while True:
        places = {key: [i for i, x in enumerate(cleaned[key]) if x] for key in _PARTS}
        document = {key: [cleaned[key][i] for i in own] for key, own in places.items()}
        report = inspect_coco(document, 'the cleaned copy')
        if not report.bad_images and not report.bad_annotations:
            return kinds
        kinds.update({problem.kind: problem.count for problem in report.errors})
        for key, bad in (('images', report.bad_images), ('annotations', report.bad_annotations)):
            for index in bad:
                cleaned[key][places[key][index]] = {}


def _changes(key: str, old: list, new: list[dict]) -> list[str]:
    """How many entries were dropped, and of how many which value was changed."""
    counts: Counter = Counter()
    for one, other in zip(old, new):
        counts.update(
            f'changed {name} of {{}} {key}'
            for name, value in other.items()
            if type(one.get(name)) is not type(value) or one.get(name) != value
        )
    if dropped := new.count({}):
        counts[f'dropped {{}} {key}'] = dropped
    return [text.format(count) for text, count in counts.items()]
