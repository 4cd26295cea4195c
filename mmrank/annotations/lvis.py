"""What LVIS's annotation files have in addition to COCO's, and how it is checked.

Each image names the classes that it was verified to lack (``neg_category_ids``) and the ones of
which not every object is annotated (``not_exhaustive_category_ids``): Gupta et al., LVIS, CVPR
2019, section 3.
"""

from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlsplit

from mmrank.annotations.findings import Findings, is_id, shown

NEGATIVE = 'neg_category_ids'
INCOMPLETE = 'not_exhaustive_category_ids'


def is_lvis(document: Mapping) -> bool:
    """Whether categories have a ``frequency`` or images name the classes that they lack."""
    parts = (document.get(key) or [{}] for key in ('images', 'categories'))
    return any(
        isinstance(part, list) and isinstance(part[0], dict) and key in part[0]
        for part, key in zip(parts, (NEGATIVE, 'frequency'))
    )


def complete_lvis(document: dict) -> None:
    """Fill in what LVIS leaves out and COCO requires, in place.

    ``iscrowd``, since LVIS has no crowds, and ``file_name``, the path of ``coco_url``:
    ``train2017/000000391895.jpg``.
    """
    for annotation in _dicts(document.get('annotations')):
        annotation.setdefault('iscrowd', 0)
    for image in _dicts(document.get('images')):
        url = image.get('coco_url')
        if 'file_name' not in image and isinstance(url, str):
            image['file_name'] = urlsplit(url).path.lstrip('/')


def scan_federated(document: Mapping, known: Collection, required: bool, found: Findings) -> None:
    """Check the classes that images are said to lack, or to have in part.

    ``document`` is otherwise checked, ``known`` has the ids of its categories. ``required``: a
    missing field is an error and not a warning.
    """
    verified = []
    for index, image in enumerate(document['images']):
        if not isinstance(image, dict) or not is_id(image.get('id')):
            continue
        where = f'images[{index}] (id {shown(image["id"])})'
        for key in (NEGATIVE, INCOMPLETE):
            problem = _fault(image, key, known)
            if problem is not None:
                found.add('federated field', f'{where} {problem}', is_error=required)
            elif key == NEGATIVE:
                verified += [(image['id'], c) for c in image[key]]
    annotated = {
        (ann['image_id'], ann['category_id'])
        for ann in _dicts(document.get('annotations'))
        if is_id(ann.get('image_id')) and is_id(ann.get('category_id'))
    }
    for image_id, category_id in annotated.intersection(verified):
        found.add(
            'verified absent and annotated',
            f'image id {shown(image_id)} has an object of category '
            f'{shown(category_id)}, and {NEGATIVE} names it',
            is_error=False,
        )


def _fault(image: dict, key: str, known: Collection) -> str | None:
    """Why a field of an image cannot be used, or None."""
    if key not in image:
        return f'has no {key!r}'
    ids = image[key]
    if not isinstance(ids, list) or not all(map(is_id, ids)):
        return f'has {key}={shown(ids)}, not a list of category ids'
    unknown = [x for x in ids if x not in known]
    return f'has {key} with {shown(unknown)}, no category' if unknown else None


def _dicts(entries: object) -> Iterator[dict]:
    entries = entries if isinstance(entries, list) else []
    return (entry for entry in entries if isinstance(entry, dict))
