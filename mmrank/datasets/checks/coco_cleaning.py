"""A cleaned copy of a COCO document."""

from mmrank.datasets.checks.coco_annotations import LARGEST_PIXEL
from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.data_report import is_id, is_number
from mmrank.errors import UserError


def clean_coco(document: dict) -> tuple[dict, list[str]]:
    """Drop or complete what makes a COCO document unusable.

    Duplicate images and categories lose to their first occurrence, annotations get fresh ids if any
    id occurs twice or is missing, absent ``area`` and ``iscrowd`` are filled in with the box's area
    and 0, and annotations that are bad after that are dropped. Missing image files are left in:
    what is right depends on why they are missing.

    Args:
        document: A parsed COCO file; it is not changed.

    Returns:
        The cleaned document and one sentence per kind of change.

    Raises:
        UserError: If a top-level list is missing: there is nothing to clean.
    """
    cleaned, changes = dict(document), []
    for key in ('images', 'annotations', 'categories'):
        if not isinstance(document.get(key), list):
            raise UserError(
                f'the document cannot be cleaned: {key!r} is not a list but '
                f'{type(document.get(key)).__name__}. Fix: export the file again as COCO.'
            )
    for key in ('images', 'categories'):
        cleaned[key] = _first_of_each_id(document[key])
        dropped = len(document[key]) - len(cleaned[key])
        if dropped:
            changes.append(f'dropped {dropped} duplicate or broken {key}')
    annotations = [_complete(a) for a in document['annotations']]
    completed = sum(a != b for a, b in zip(annotations, document['annotations']))
    if completed:
        changes.append(f'filled in area or iscrowd of {completed} annotations')
    ids = [a.get('id') for a in annotations if isinstance(a, dict)]
    if not all(map(is_id, ids)) or len(set(ids)) < len(ids):
        annotations = [
            {**a, 'id': number} if isinstance(a, dict) else a
            for number, a in enumerate(annotations, start=1)
        ]
        changes.append('renumbered the annotations')
    cleaned['annotations'] = annotations
    report = inspect_coco(cleaned, 'cleaned copy')
    cleaned['annotations'] = [
        a for index, a in enumerate(annotations) if index not in report.bad_annotations
    ]
    if report.bad_annotations:
        kinds = ', '.join(f'{p.kind}: {p.count}' for p in report.problems)
        changes.append(f'dropped {len(report.bad_annotations)} annotations ({kinds})')
    return cleaned, changes


def _first_of_each_id(entries: list) -> list:
    """Entries with an id, the first of each."""
    kept = {}
    for entry in entries:
        if isinstance(entry, dict) and is_id(entry.get('id')):
            kept.setdefault(entry['id'], entry)
    return list(kept.values())


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
