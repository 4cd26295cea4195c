"""A copy of a COCO document without what makes it unusable."""

import os
from collections import defaultdict
from collections.abc import Callable

from mmrank.apis.coco.merging import renumber_classes
from mmrank.apis.coco.tidying import tidy_classes, tidy_images, tidy_masks
from mmrank.datasets.checks.coco_annotations import LARGEST_PIXEL, is_number_id
from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.data_report import is_id, is_number
from mmrank.datasets.lvis_annotations import INCOMPLETE, NEGATIVE
from mmrank.errors import UserError

_PARTS = {'images': 'image_id', 'categories': 'category_id'}


def clean_coco(
    document: dict, image_dir: str | os.PathLike | None = None
) -> tuple[dict, list[str]]:
    """Drop or complete what makes a COCO document unusable; one sentence per kind of change.

    Names and polygons are tidied; from the pictures in ``image_dir`` missing sizes are filled in.

    What cannot be told is dropped and counted, never guessed: pictures or classes that share an
    id, and their annotations. A ``UserError`` if nothing would be left.
    """
    for key in (*_PARTS, 'annotations'):
        if not isinstance(document.get(key), list):
            raise UserError(
                f'the document cannot be cleaned: {key!r} is not a list but '
                f'{type(document.get(key)).__name__}. Fix: export the file again as COCO.'
            )
    cleaned = dict(document)
    new_classes = {}
    annotations, changes = tidy_masks(document['annotations'])
    tidied = dict(
        images=tidy_images(document['images'], image_dir),
        categories=tidy_classes(document['categories']),
    )
    for key, reference in _PARTS.items():
        same = _is_same_picture if key == 'images' else _is_same_class
        changes += tidied[key][1]
        entries, ambiguous = _one_of_each_id(tidied[key][0], same)
        if ambiguous:
            kept = [x for x in annotations if _get(x, reference) not in ambiguous]
            changes.append(
                f'dropped {sum(map(len, ambiguous.values()))} {key} that share '
                f'{len(ambiguous)} ids, and their {len(annotations) - len(kept)} annotations: '
                'which of them is meant cannot be told'
            )
            annotations = kept
        dropped = len(document[key]) - len(entries) - sum(map(len, ambiguous.values()))
        if dropped:
            changes.append(f'dropped {dropped} duplicate or broken {key}')
        ids = _new_ids([x['id'] for x in entries])
        if key == 'categories':
            entries, ids = _merged_by_name(entries, ids, changes)
            new_classes = ids
        cleaned[key] = [{**x, 'id': ids[x['id']]} for x in entries]
        annotations = _with_new_references(annotations, key, reference, ids, changes)
    cleaned['images'] = _with_new_lists(cleaned['images'], annotations, new_classes, changes)
    complete = [_complete(x) for x in annotations]
    completed = sum(a != b for a, b in zip(complete, annotations))
    if completed:
        changes.append(f'filled in area or iscrowd of {completed} annotations')
    cleaned['annotations'] = _renumbered(complete, changes)
    report = inspect_coco(cleaned, 'cleaned copy')
    annotations = cleaned['annotations']
    cleaned['annotations'] = [
        x for index, x in enumerate(annotations) if index not in report.bad_annotations
    ]
    if report.bad_annotations:
        kinds = ', '.join(f'{p.kind}: {p.count}' for p in report.problems)
        changes.append(f'dropped {len(report.bad_annotations)} annotations ({kinds})')
    for key in (*_PARTS, 'annotations'):
        if document[key] and not cleaned[key]:
            raise UserError(
                f'the document cannot be cleaned: none of its {len(document[key])} {key} would be '
                f'left. {"; ".join(changes)}. Fix: correct what the findings name, or export the '
                'file again'
            )
    return cleaned, changes


def _get(entry: object, key: str) -> object:
    """The value of a key, None where there is none that can be looked up."""
    value = entry.get(key) if isinstance(entry, dict) else None
    is_key = isinstance(value, int | float | str) and not isinstance(value, bool)
    return value if is_key and value == value else None


def _whole(value: object) -> object:
    """The integer that a float or a text is, else the value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value) if str(int(value)) == value else value
    return value


def _one_of_each_id(entries: list, same: Callable) -> tuple[list[dict], dict[object, list]]:
    """The entries with an id of their own, and by id different things that share one."""
    by_id = defaultdict(list)
    for entry in entries:
        value = _get(entry, 'id')
        if is_id(value) or is_id(_whole(value)):
            by_id[value].append(entry)
    shared = {x: own for x, own in by_id.items() if not all(same(own[0], y) for y in own[1:])}
    return [own[0] for x, own in by_id.items() if x not in shared], shared


def _is_same_picture(one: dict, other: dict) -> bool:
    return all(one.get(x) == other.get(x) for x in ('file_name', 'width', 'height'))


def _is_same_class(one: dict, other: dict) -> bool:
    return one.get('name') == other.get('name')


def _new_ids(ids: list) -> dict:
    """By id the one of the copy: a whole number, or a text where all are texts."""
    whole = [_whole(x) for x in ids]
    if len(set(whole)) == len(ids) and all(map(is_number_id, whole)):
        return dict(zip(ids, whole))
    if all(isinstance(x, str) for x in ids):
        return {x: x for x in ids}
    return {x: number for number, x in enumerate(ids, 1)}


def _merged_by_name(entries: list, ids: dict, changes: list[str]) -> tuple[list, dict]:
    """Categories with one of each name; the others' ids become its id."""
    first: dict[object, object] = {}
    for entry in entries:
        name = entry.get('name')
        ids[entry['id']] = first.setdefault(
            name if isinstance(name, str) else id(entry), ids[entry['id']]
        )
    if len(first) < len(entries):
        changes.append(f'merged {len(entries) - len(first)} categories into others of their name')
    kept: dict[object, dict] = {}
    for entry in entries:
        kept.setdefault(ids[entry['id']], entry)
    return [*kept.values()], ids


def _with_new_references(
    annotations: list, key: str, reference: str, ids: dict, changes: list[str]
) -> list:
    """Annotations that name the new ids, where it is clear which one is meant."""
    clear = _clear(ids)
    count = 0
    found = []
    for ann in annotations:
        old = _get(ann, reference)
        new = ids.get(old, clear.get(_whole(old), old))
        if type(new) is not type(old) or new != old:
            count += 1
            ann = {**ann, reference: new}
        found.append(ann)
    changed = sum(type(old) is not type(new) or old != new for old, new in ids.items())
    if changed or count:
        changes.append(
            f'changed the ids of {changed} {key}, and {reference} of {count} annotations'
        )
    return found


def _clear(ids: dict) -> dict:
    """New ids by the number that an old one is, where one alone is that number."""
    wholes = defaultdict(set)
    for old, new in ids.items():
        wholes[_whole(old)].add(new)
    return {x: next(iter(own)) for x, own in wholes.items() if len(own) == 1}


def _with_new_lists(
    images: list[dict], annotations: list, new_classes: dict, changes: list[str]
) -> list[dict]:
    """Images whose LVIS lists name the new classes, without those that have an object."""
    if not any(NEGATIVE in x or INCOMPLETE in x for x in images):
        return images
    present = defaultdict(set)
    for ann in annotations:
        present[_get(ann, 'image_id')].add(_get(ann, 'category_id'))
    new_ids = {**_clear(new_classes), **new_classes}
    new = [renumber_classes(x, new_ids, present[x['id']]) for x in images]
    count = sum(a != b for a, b in zip(images, new))
    if count:
        changes.append(f'changed {NEGATIVE} or {INCOMPLETE} of {count} images')
    return new


def _renumbered(annotations: list, changes: list[str]) -> list:
    ids = [_get(x, 'id') for x in annotations]
    if all(map(is_number_id, ids)) and len(set(ids)) == len(ids):
        return annotations
    changes.append('renumbered the annotations')
    return [
        {**x, 'id': number} if isinstance(x, dict) else x for number, x in enumerate(annotations, 1)
    ]


def _complete(ann: object) -> object:
    """A copy with ``area`` and ``iscrowd`` where they can be derived."""
    if not isinstance(ann, dict):
        return ann
    ann = dict(ann)
    box = ann.get('bbox')
    is_box = isinstance(box, list) and len(box) == 4
    if is_box and all(is_number(v) and abs(v) <= LARGEST_PIXEL for v in box):
        area = ann.get('area')
        if not is_number(area) or not 0 < area <= LARGEST_PIXEL**2:
            ann['area'] = box[2] * box[3]
    if ann.get('iscrowd') not in (0, 1):
        ann['iscrowd'] = 0
    return ann
