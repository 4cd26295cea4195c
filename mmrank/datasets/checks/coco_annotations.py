"""The pass over a COCO file's annotations.

``instances_train2017.json`` (860,001 annotations) takes a second or two: the
loop has a fast path for a good annotation and looks closer only at a bad one.
"""

from math import inf, isfinite

from mmrank.datasets.checks.coco_findings import Findings, is_id, lacks_keys
from mmrank.datasets.checks.coco_report import CocoReport

# Official COCO has two boxes of zero height in 860,001 and mmdet skips them:
# so few are a warning, more are an error.
TOLERATED_EMPTY_BOXES = 1e-4
# A box that reaches further than this beyond the image is suspicious.
_OVERHANG_PIXELS = 2
_OVERHANG_FRACTION = 0.2
_NUMBER = (int, float)


def scan_annotations(
    annotations: list,
    images: dict,
    names: dict,
    wanted: set | None,
    report: CocoReport,
    found: Findings,
) -> dict[str, set]:
    """Check and count annotations.

    Returns:
        Image ids with any annotation (``'any'``), and with one of a wanted
        class (``'wanted'``).
    """
    used, used_wanted, seen_ids, empty = set(), set(), set(), []
    overhang = 0
    counts = {i: report.counts[name] for i, name in names.items()}
    wanted_ids = {i for i, n in names.items() if wanted is None or n in wanted}
    for index, ann in enumerate(annotations):
        try:
            x, y, w, h = ann['bbox']
            width, height = images[ann['image_id']]
            good = (
                ann['id'] not in seen_ids
                and ann['category_id'] in counts
                and 0 < w < inf
                and 0 < h < inf
                and -w < x < width
                and -h < y < height
                and 0 < ann['area'] < inf
                and ann['iscrowd'] in (0, 1)
            )
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            kinds = _diagnose(index, ann, images, names, seen_ids, found)
            if kinds == {'box of zero size'}:
                empty.append(index)
            else:
                report.bad_annotations.add(index)
            if isinstance(ann, dict) and is_id(ann.get('id')):
                seen_ids.add(ann['id'])
            continue
        seen_ids.add(ann['id'])
        used.add(ann['image_id'])
        if ann['category_id'] in wanted_ids:
            used_wanted.add(ann['image_id'])
        counts[ann['category_id']].add(ann['area'], bool(ann['iscrowd']))
        overhang += (
            x + w > width + _OVERHANG_PIXELS
            or y + h > height + _OVERHANG_PIXELS
        )
    if empty and len(empty) <= TOLERATED_EMPTY_BOXES * len(annotations):
        found.by_kind['box of zero size'].is_error = False
    report.bad_annotations.update(empty)
    if overhang > _OVERHANG_FRACTION * len(annotations):
        found.add(
            'boxes reach beyond the image',
            f'{overhang} of {len(annotations)} boxes end more than '
            f'{_OVERHANG_PIXELS} pixels beyond the right or lower edge',
            is_error=False,
        )
    if not annotations:
        found.add(
            'no annotation at all', "'annotations' is empty", is_error=False
        )
    return {'any': used, 'wanted': used_wanted}


def _diagnose(
    index: int,
    ann: object,
    images: dict,
    names: dict,
    seen_ids: set,
    found: Findings,
) -> set[str]:
    """Report what is wrong with one annotation; return the kinds."""
    where = f'annotations[{index}]'
    keys = ('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd')
    if lacks_keys(ann, where, keys, found):
        return {'missing key'}
    where = f'{where} (id {ann["id"]!r}, image_id {ann["image_id"]!r})'
    findings = [
        *_id_findings(ann, images, names, seen_ids),
        *_box_findings(ann, images),
    ]
    for kind, text in findings:
        found.add(kind, f'{where}: {text}')
    return {kind for kind, _ in findings}


def _id_findings(
    ann: dict, images: dict, names: dict, seen_ids: set
) -> list[tuple[str, str]]:
    for key in ('id', 'image_id', 'category_id'):
        if not is_id(ann[key]):
            return [('malformed value', f'{key} is {ann[key]!r}')]
    findings = []
    if ann['id'] in seen_ids:
        findings.append(('duplicate annotation id', 'this id occurs again'))
    if ann['image_id'] not in images:
        text = f'no image has the id {ann["image_id"]!r}'
        findings.append(('unknown image id', text))
    if ann['category_id'] not in names:
        known = ', '.join(map(repr, list(names)[:10]))
        known += ', ...' if len(names) > 10 else ''
        text = f'category_id is {ann["category_id"]!r}; the file has {known}'
        findings.append(('unknown category id', text))
    return findings


def _box_findings(ann: dict, images: dict) -> list[tuple[str, str]]:
    box, area = ann['bbox'], ann['area']
    well_formed = (
        isinstance(box, list)
        and len(box) == 4
        and all(isinstance(v, _NUMBER) for v in box)
    )
    if not well_formed:
        return [('malformed value', f'bbox is {box!r}')]
    if not isinstance(area, _NUMBER):
        return [('malformed value', f'area is {area!r}')]
    if ann['iscrowd'] not in (0, 1):
        return [('malformed value', f'iscrowd is {ann["iscrowd"]!r}')]
    text = f'bbox is {box}'
    if not all(isfinite(v) for v in box):
        return [('box with NaN or infinity', text)]
    x, y, w, h = box
    if w < 0 or h < 0:
        side = 'width' if w < 0 else 'height'
        text += f', its {side} is {min(w, h):g}'
        return [('box of negative size', text)]
    if w == 0 or h == 0:
        return [('box of zero size', f'{text}, {w:g} x {h:g} pixels')]
    key = ann['image_id'] if is_id(ann['image_id']) else None
    width, height = images.get(key, (inf, inf))
    if not (-w < x < width and -h < y < height):
        text += f', the image is {width} x {height}'
        return [('box outside the image', text)]
    if not 0 < area < inf:
        return [('area not positive', f'area is {area}')]
    return []
