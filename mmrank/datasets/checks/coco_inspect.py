"""Everything that is wrong with a COCO document, found in one pass."""

import os
from collections.abc import Collection, Sequence
from itertools import islice
from math import inf

from mmrank.datasets.checks.coco_annotations import (
    ANNOTATION_FIXES,
    LARGEST_PIXEL,
    CocoFile,
    is_number_id,
    scan_annotations,
)
from mmrank.datasets.checks.coco_images import find_image_problems
from mmrank.datasets.checks.coco_reading import collector_paused, read_coco_json
from mmrank.datasets.checks.coco_report import FIXES, ClassCount, CocoReport
from mmrank.datasets.checks.data_report import Findings, is_id, is_number, shown
from mmrank.datasets.lvis_annotations import complete_lvis, is_lvis, scan_federated
from mmrank.files import path_fault

_ALL_FIXES = ANNOTATION_FIXES | FIXES


@collector_paused()
def inspect_coco(
    document: dict,
    ann_file: str | os.PathLike,
    image_dir: str | os.PathLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    verify_images: bool = False,
    skip_empty_images: bool = False,
    min_size: int = 0,
    require_annotations: bool = True,
    max_examples: int = 3,
    federated: bool = False,
    require_masks: bool = False,
) -> CocoReport:
    """Find all problems of a COCO document. What LVIS leaves out of COCO's form is filled in.

    ``ann_file`` is for messages. ``image_dir`` None checks no image file, ``classes`` None accepts
    the file's; ``verify_images`` also decodes every image and compares its size. The files of
    images without objects (``skip_empty_images``), or whose shorter side is below ``min_size``
    pixels, need not be there, as mmdet's ``filter_cfg`` drops them. Test sets for submission have
    no annotations (``require_annotations=False``). ``federated``: every image must say which
    classes it lacks; otherwise a missing field is a warning in LVIS files, and nothing in others.
    ``require_masks``: every object must have a segmentation.
    """
    found = Findings(max_examples, _ALL_FIXES)
    report = CocoReport(str(ann_file))
    federated_file = is_lvis(document)
    if federated_file:
        complete_lvis(document)
    parts = {}
    for key in ('images', 'annotations', 'categories'):
        value = document.get(key)
        if value is None and (key != 'annotations' or require_annotations):
            keys = ', '.join(map(shown, islice(document, 10))) or 'nothing'
            found.add('missing key', f'no {key!r}; the file has {keys}')
        elif value is not None and not isinstance(value, list):
            found.add('malformed value', f'{key} is a {type(value).__name__}, not a list')
        parts[key] = value if isinstance(value, list) else []
    report.num_images = len(parts['images'])
    report.num_annotations = len(parts['annotations'])
    if not found.by_kind:
        names = _scan_categories(parts['categories'], found)
        report.counts = {name: ClassCount() for name in names.values()}
        if classes is not None:
            _compare_classes(classes, list(names.values()), found)
        images = _scan_images(parts['images'], found, report)
        report.names = names
        for key, ids in (('image', images), ('category', names)):
            _check_kind(key, [*ids], found)
        wanted = None if classes is None else set(classes)
        file = CocoFile(images, names)
        used = scan_annotations(parts['annotations'], file, wanted, report, found)
        report.num_empty_images = len(images) - len(used['any'])
        if require_masks:
            _find_missing_masks(parts['annotations'], names, wanted, found)
        if federated_file or federated:
            scan_federated(document, names.keys(), federated, found)
        if image_dir is not None:
            filters = used['wanted'], skip_empty_images, min_size
            entries = [entry for entry in parts['images'] if _is_needed(entry, *filters)]
            find_image_problems(entries, image_dir, verify_images, found)
    problems = [found.by_kind[kind] for kind in _ALL_FIXES if kind in found.by_kind]
    report.problems = sorted(problems, key=lambda problem: not problem.is_error)
    return report


def read_checked(
    ann_file: str | os.PathLike, image_dir: str | os.PathLike | None = None, **options: object
) -> tuple[dict, CocoReport]:
    """Read and check a file, and refuse a bad one; see :func:`inspect_coco` for the arguments.

    Images without objects, one class only and crowds are fine. The report may have warnings.
    """
    document = read_coco_json(ann_file)
    report = inspect_coco(document, ann_file, image_dir, **options)
    report.raise_if_bad()
    return document, report


def check_coco_file(ann_file: str | os.PathLike, *args: object, **options: object) -> CocoReport:
    """The report of :func:`read_checked`."""
    return read_checked(ann_file, *args, **options)[1]


def _is_needed(entry: object, used: Collection, skip_empty: bool, min_size: int) -> bool:
    """Whether mmdet's filter keeps this image."""
    if not isinstance(entry, dict):
        return False
    image_id = entry.get('id')
    if skip_empty and (not is_id(image_id) or image_id not in used):
        return False
    sides = entry.get('width', inf), entry.get('height', inf)
    return not all(map(is_number, sides)) or min(sides) >= min_size


def _scan_categories(categories: list, found: Findings) -> dict:
    """Names by category id, in the file's order."""
    names, known = {}, set()
    for index, category in enumerate(categories):
        where = f'categories[{index}]'
        if found.lacks_keys(category, where, ('id', 'name')):
            continue
        cat_id, name = category['id'], category['name']
        whole = f'{where} (id {shown(cat_id)})'
        if not is_id(cat_id) or not isinstance(name, str):
            found.add('malformed value', f'{where} is {shown(category)}')
        elif not _is_unicode(name):
            text = f'name {shown(name)} holds a character that is not valid Unicode'
            found.add('malformed value', f'{whole}: {text}')
        elif cat_id in names:
            text = f'belongs to {shown(names[cat_id])} and {shown(name)}'
            found.add('duplicate category id', f'id {shown(cat_id)} {text}')
        elif name in known:
            found.add('duplicate category name', f'{whole} is another {shown(name)}')
        else:
            names[cat_id] = name
            known.add(name)
    if not categories:
        found.add('missing key', "'categories' is an empty list")
    return names


def _first(names: Sequence[str], most: int, end: str) -> str:
    return ', '.join(map(repr, names[:most])) + (end if len(names) > most else '')


def _compare_classes(classes: Sequence[str], names: list[str], found: Findings) -> None:
    """Compare the requested classes with the file's categories."""
    known, requested = set(names), set(classes)
    absent = [name for name in classes if name not in known]
    present = [name for name in classes if name in known]
    if absent:
        found.add(
            'class without category',
            f"{len(absent)} of {len(classes)} names in metainfo['classes'] are no category of the "
            f'file: {_first(absent, 5, f" and {len(absent) - 5} more")}; the file has '
            f'{len(names)}: {_first(names, 10, ", ...")}',
        )
    elif present != [name for name in names if name in requested]:
        found.add(
            'order of classes differs',
            f"metainfo['classes'] is {tuple(classes[:6])}, the file's order is {tuple(names[:6])}",
            is_error=False,
        )


def _check_kind(key: str, ids: list, found: Findings) -> None:
    """Refuse ids that evaluators cannot sort, or not hold in 64 bits."""
    numbers = [x for x in ids if isinstance(x, int)]
    if 0 < len(numbers) < len(ids):
        text = next(x for x in ids if isinstance(x, str))
        found.add(
            'ids of several kinds',
            f'{len(numbers)} {key} ids are numbers, such as {shown(numbers[0])}, and '
            f'{len(ids) - len(numbers)} are texts, such as {shown(text)}',
        )
    for number in {min(numbers, default=0), max(numbers, default=0)}:
        if not is_number_id(number):
            text = f'{key} id {shown(number)} has more than 64 bits'
            found.add('ids of several kinds', text)


def _find_missing_masks(
    annotations: list, names: dict, wanted: Collection | None, found: Findings
) -> None:
    for index, ann in enumerate(annotations):
        if not isinstance(ann, dict) or ann.get('segmentation'):
            continue
        kind = ann.get('category_id')
        name = names.get(kind) if is_id(kind) else None
        if wanted is None or name in wanted:
            where = f'annotations[{index}] (id {shown(ann.get("id"))})'
            found.add('object without a mask', f'{where} has no segmentation')


def _scan_images(images: list, found: Findings, report: CocoReport) -> dict:
    """(width, height) by image id; a bad size is (inf, inf)."""
    sizes: dict = {}
    for index, image in enumerate(images):
        where = f'images[{index}]'
        if found.lacks_keys(image, where, ('id', 'width', 'height')):
            continue
        image_id = image['id']
        if not is_id(image_id):
            found.add('malformed value', f'{where}: id is {shown(image_id)}')
            continue
        size = image['width'], image['height']
        findings = _image_findings(image)
        if image_id in sizes:
            findings = [('duplicate image id', 'occurs again')]
        for kind, text in findings:
            found.add(kind, f'{where} (id {shown(image_id)}) {text}')
        name = image.get('file_name') or image.get('coco_url')
        report.images.setdefault(image_id, (name, *size))
        sizes.setdefault(image_id, size if _is_size(*size) else (inf, inf))
    if len({name for name, *_ in report.images.values() if isinstance(name, str)}) < len(sizes):
        _find_repeated_pictures(report.images, found)
    return sizes


def _find_repeated_pictures(images: dict, found: Findings) -> None:
    first: dict[str, object] = {}
    for image_id, (name, *_) in images.items():
        if isinstance(name, str) and first.setdefault(name, image_id) != image_id:
            text = f'{shown(name)} has the ids {shown(first[name])} and {shown(image_id)}'
            found.add('one picture under two ids', text, is_error=False)


def _image_findings(image: dict) -> list[tuple[str, str]]:
    """What is wrong with an image, except its id."""
    findings = []
    if 'file_name' in image:
        name = image['file_name']
        if fault := path_fault(name):
            findings = [('unusable file name', f'has file_name {shown(name)}, which {fault}')]
    elif 'coco_url' not in image:
        findings = [('missing key', "has no 'file_name'")]
    if not _is_size(image['width'], image['height']):
        text = f'has width {shown(image["width"])}, height {shown(image["height"])}'
        findings.append(('malformed value', text))
    return findings


def _is_size(width: object, height: object) -> bool:
    return _is_side(width) and _is_side(height)


def _is_side(value: object) -> bool:
    return is_number(value) and 0 < value <= LARGEST_PIXEL


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
