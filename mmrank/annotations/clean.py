"""A copy of a COCO document without what makes it unusable."""

import os
from collections import Counter, defaultdict
from contextlib import suppress
from unicodedata import normalize

from mmrank.annotations.check import inspect_coco, is_size
from mmrank.annotations.documents import renumber_classes
from mmrank.annotations.findings import is_number, shown
from mmrank.annotations.images import image_size, spelling_on_disk
from mmrank.annotations.masks import LARGEST_PIXEL, is_polygon
from mmrank.annotations.objects import is_number_id
from mmrank.errors import UserError
from mmrank.files import path_fault

#: What ``iscrowd`` may be, also as a text.
_CROWD = {'none': 0, '0': 0, '0.0': 0, 'false': 0, '1': 1, '1.0': 1, 'true': 1}
_PARTS = ('images', 'categories', 'annotations')


def clean_coco(
    document: dict, image_dir: str | os.PathLike | None = None
) -> tuple[dict, list[str]]:
    """Drop or complete what makes a COCO document unusable; one sentence per kind of change.

    Missing sizes come from the pictures in ``image_dir``. What cannot be known is dropped and
    counted, never guessed. A ``UserError`` if nothing would be left, or another error.
    """
    # An entry that is dropped stays in its place, empty, so that old and new can be compared.
    copies: dict[str, list[dict]] = {}
    for key in _PARTS:
        entries = document.get(key)
        if not isinstance(entries, list):
            what = f'the document cannot be cleaned: {key!r} is {shown(entries)}, not a list'
            raise UserError(what, 'export the file again as COCO')
        copies[key] = [dict(x) if isinstance(x, dict) else {} for x in entries]
    images, categories, annotations = copies.values()
    for image in filter(None, images):
        tidy_image(image, image_dir)
    for category in categories:
        if isinstance(category.get('name'), str):  # one blank between words, composed characters
            category['name'] = normalize('NFC', ' '.join(category['name'].split()))
    for ann in filter(None, annotations):
        _tidy_annotation(ann)
    image_ids = _new_ids(images)
    class_ids = _new_ids(categories)
    # Categories that differ in their ids alone get one new id.
    first: dict[str, object] = {}
    for category in categories:
        old = _whole(category.get('id'))
        if class_ids.get(old) is not None:
            new = first.setdefault(repr({**category, 'id': None}), class_ids[old])
            class_ids[old] = class_ids[category['id']] = new
    _number(images, image_ids)
    _number(categories, class_ids)
    for ann in filter(None, annotations):
        _refer(ann, 'image_id', image_ids)
        _refer(ann, 'category_id', class_ids)
    numbers = [x.get('id') for x in annotations if x]
    if not all(map(is_number_id, numbers)) or len(set(numbers)) < len(numbers):
        for number, ann in enumerate(filter(None, annotations), 1):
            ann['id'] = number
    kinds = _drop_bad(copies)
    # LVIS lists of images name the new classes, without those that have an object.
    present = defaultdict(set)
    for ann in filter(None, annotations):
        present[ann['image_id']].add(ann['category_id'])
    for image in filter(None, images):
        image.update(renumber_classes(image, class_ids, present[image['id']]))
    changes = [x for key in _PARTS for x in _changes(key, document[key], copies[key])]
    shared = [x for ids in (image_ids, class_ids) for x, new in ids.items() if new is None]
    if shared:
        changes.append(f'ids of several images or categories, and so of none: {shown(shared)}')
    if kinds:
        text = ', '.join(f'{kind} ({count})' for kind, count in kinds.items())
        changes.append(f'dropped was what had: {text}')
    cleaned = {**document, **_kept(copies)}
    for key in _PARTS:
        if document[key] and not cleaned[key]:
            what = f'none of its {len(document[key])} {key} would be left ({"; ".join(changes)})'
            fix = 'correct what the findings name, with --images if sizes are missing'
            raise UserError(what, fix)
    report = inspect_coco(cleaned, 'the cleaned copy')
    if not report.ok:
        raise UserError(f'{report.describe(report.errors)}\nNothing was written')
    return cleaned, changes


def _kept(copies: dict[str, list[dict]]) -> dict[str, list[dict]]:
    return {key: [x for x in entries if x] for key, entries in copies.items()}


def tidy_image(image: dict, image_dir: str | os.PathLike | None) -> None:
    """The file name as it is on the disk, and a size where there is none."""
    name = image.get('file_name')
    if path_fault(name):
        return
    name = name.removeprefix('./')
    if image_dir is not None:
        folder = os.path.join(image_dir, os.path.dirname(name))
        if not os.path.exists(os.path.join(image_dir, name)):
            listing = os.listdir(folder) if os.path.isdir(folder) else ()
            name = spelling_on_disk(name, image_dir, listing) or name
        path = os.path.join(image_dir, name)
        if not is_size(image.get('width'), image.get('height')) and os.path.isfile(path):
            with suppress(ValueError):  # the check names it
                image['width'], image['height'] = image_size(path)
    image['file_name'] = name


def _tidy_annotation(ann: dict) -> None:
    """Polygons that can be drawn, and ``area`` and ``iscrowd`` where they can be derived."""
    mask = ann.get('segmentation')
    if isinstance(mask, list):
        polygons = [mask] if all(map(is_number, mask)) else mask
        ann['segmentation'] = [x for x in polygons if is_polygon(x)]
    box = ann.get('bbox')
    is_box = isinstance(box, list) and len(box) == 4
    if is_box and all(is_number(x) and abs(x) <= LARGEST_PIXEL for x in box):
        area = ann.get('area')
        with suppress(TypeError, ValueError):
            area = float(area) if isinstance(area, str) else area
        if not is_number(area) or not 0 < area <= LARGEST_PIXEL**2:
            area = box[2] * box[3]
        ann['area'] = area
    # What another text means is not known.
    crowd = ann.get('iscrowd')
    ann['iscrowd'] = _CROWD.get(str(crowd).strip().lower(), crowd)


def _whole(value: object) -> object:
    """The integer that a float or a text is; a text as it is; None for any other value."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value) if str(int(value)) == value else value
    return value if type(value) in (int, str) else None


def _new_ids(entries: list[dict]) -> dict:
    """The id of the copy by the id of the file, also in another type.

    None where different entries share it.
    """
    by_id = defaultdict(list)
    for entry in entries:
        if _whole(entry.get('id')) is not None:
            by_id[entry['id']].append(entry)
    ids = [x for x, own in by_id.items() if all(own[0] == y for y in own)]
    whole = [_whole(x) for x in ids]
    new = range(1, len(ids) + 1)
    if len(set(whole)) == len(ids) and all(map(is_number_id, whole)):
        new = whole
    elif all(isinstance(x, str) for x in ids):
        new = ids
    found = {**dict.fromkeys(by_id), **dict(zip(ids, new))}
    counts = Counter(map(_whole, found))
    return {_whole(x): y for x, y in found.items() if counts[_whole(x)] == 1} | found


def _number(entries: list[dict], ids: dict) -> None:
    """Write the new ids, each once; entries without one are dropped."""
    seen = {None}
    for entry in entries:
        _refer(entry, 'id', ids)
        new = entry.get('id') if type(entry.get('id')) in (int, str) else None
        if new in seen:
            entry.clear()
        seen.add(new)


def _refer(entry: dict, key: str, ids: dict) -> None:
    """Write the new id, where it is clear which one is meant; else None."""
    old = entry.get(key)
    if _whole(old) is not None:
        entry[key] = ids.get(old, ids.get(_whole(old)))


def _drop_bad(copies: dict[str, list[dict]]) -> Counter:
    """Empty images and annotations with an error; the kinds of errors."""
    kinds: Counter = Counter()
    while True:
        kept = _kept(copies)
        report = inspect_coco(kept, 'the cleaned copy')
        if not report.bad_images and not report.bad_annotations:
            return kinds
        kinds.update({problem.kind: problem.count for problem in report.errors})
        for index in report.bad_images:
            kept['images'][index].clear()
        for index in report.bad_annotations:
            kept['annotations'][index].clear()


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
