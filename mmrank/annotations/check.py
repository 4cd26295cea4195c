"""Everything that is wrong with a COCO document, found in one pass."""

import os
import re
from collections.abc import Collection, Sequence
from math import inf
from unicodedata import normalize

import numpy as np

from mmrank.annotations.findings import FIXES, CocoReport, Findings, is_id, is_number, shown
from mmrank.annotations.images import find_image_problems
from mmrank.annotations.lvis import complete_lvis, is_lvis, scan_federated
from mmrank.annotations.masks import LARGEST_PIXEL
from mmrank.annotations.objects import ANNOTATION_FIXES, is_number_id, scan_annotations
from mmrank.annotations.read import collector_paused, read_coco_json
from mmrank.files import path_fault

#: Class names that differ in these alone look alike.
_SEPARATORS = re.compile(r'[\s_\u200b-]+')


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
    federated: bool = False,
    require_masks: bool = False,
) -> CocoReport:
    """Find all problems of a COCO document. What LVIS leaves out of COCO's form is filled in.

    Args:
        document: Content of the file.
        ann_file: Its name, for messages.
        image_dir: Folder of the images; None looks for no image file.
        classes: Names that are trained on; None: all names of the file.
        verify_images: Decode every image, not only read the size of some.
        skip_empty_images: The files of images without objects need not be there.
        min_size: ``filter_cfg.min_size`` of mmdet; files of smaller images need not be there.
        require_annotations: False for test sets for submission, which have none.
        federated: Every image must say which classes it lacks.
        require_masks: Every object must have a segmentation.
    """
    fixes = ANNOTATION_FIXES | FIXES
    found = Findings(fixes)
    report = CocoReport(str(ann_file), None if image_dir is None else str(image_dir))
    is_federated = is_lvis(document)
    if is_federated:
        complete_lvis(document)
    parts = {}
    for key in ('images', 'annotations', 'categories'):
        parts[key] = document.get(key, [])
        if key not in document and (key != 'annotations' or require_annotations):
            keys = ', '.join(map(shown, [*document][:10])) or 'nothing'
            found.add('missing key', f'no {key!r}; the file has {keys}')
        elif not isinstance(parts[key], list):
            found.add('malformed value', f'{key} is a {type(parts[key]).__name__}, not a list')
    if not found.by_kind:
        report.num_images = len(parts['images'])
        report.num_annotations = len(parts['annotations'])
        _scan_categories(parts['categories'], report, found)
        names = [*report.names.values()]
        wanted = set(names if classes is None else classes)
        if classes is not None:
            _compare_classes(classes, names, found)
        sizes = _scan_images(parts['images'], report, found)
        _check_kind('image', [*sizes], found)
        _check_kind('category', [*report.names], found)
        scan_annotations(parts['annotations'], sizes, wanted, require_masks, report, found)
        columns = report.columns
        report.num_empty_images = len(sizes) - len({*columns.image.tolist()})
        small = [i for i, size in sizes.items() if min(size) < min_size]
        if small:
            text = f'{len(small)} of {len(sizes)} images have a side shorter than {min_size=}, such'
            found.add('images below min_size', f'{text} as id {shown(small[0])}', is_error=False)
        if is_federated or federated:
            scan_federated(document, report.names.keys(), federated, found)
        if image_dir is not None:
            labels = [label for label, name in enumerate(names) if name in wanted]
            ids = [*sizes]
            used = {ids[i] for i in columns.image[np.isin(columns.label, labels)].tolist()}
            entries = [
                entry
                for index, entry in enumerate(parts['images'])
                if index not in report.bad_images
                and (not skip_empty_images or entry['id'] in used)
                and min(entry['width'], entry['height']) >= min_size
            ]
            find_image_problems(entries, image_dir, verify_images, found)
    problems = [found.by_kind[kind] for kind in fixes if kind in found.by_kind]
    report.problems = sorted(problems, key=lambda problem: not problem.is_error)
    return report


@collector_paused()
def read_checked(
    ann_file: str | os.PathLike, image_dir: str | os.PathLike | None = None, **options: object
) -> tuple[dict, CocoReport]:
    """Read and check a file, and refuse a bad one; see :func:`inspect_coco` for the arguments."""
    document = read_coco_json(ann_file)
    report = inspect_coco(document, ann_file, image_dir, **options)
    report.raise_if_bad()
    return document, report


def _scan_categories(categories: list, report: CocoReport, found: Findings) -> None:
    """Names by category id, in the file's order."""
    alike: dict[str, str] = {}
    known: set[str] = set()
    for index, category in enumerate(categories):
        where = f'categories[{index}]'
        if found.lacks_keys(category, where, ('id', 'name')):
            continue
        number = category['id']
        name = category['name']
        is_text = isinstance(name, str) and name.encode(errors='ignore').decode() == name
        if not is_id(number) or not is_text or not name.strip():
            found.add('malformed value', f'{where} is {shown(category)}')
            continue
        plain = _SEPARATORS.sub(' ', normalize('NFKC', name).casefold()).strip()
        other = alike.setdefault(plain, name)
        if number in report.names:
            text = f'id {shown(number)} belongs to {shown(report.names[number])} and {shown(name)}'
            found.add('duplicate category id', text)
        elif name in known:
            found.add('duplicate category name', f'{where} is another {shown(name)}')
        else:
            report.names[number] = name
            known.add(name)
            if name != other:
                text = f'{where} is {shown(name)} beside {shown(other)}'
                found.add('class names that look alike', text, is_error=False)
    if not categories:
        found.add('missing key', "'categories' is an empty list")


def _compare_classes(classes: Sequence[str], names: list[str], found: Findings) -> None:
    known = set(names)
    requested = set(classes)
    absent = [name for name in classes if name not in known]
    if absent:
        found.add(
            'class without category',
            f"{len(absent)} of {len(classes)} names in metainfo['classes'] are not categories "
            f'of the file: {shown(absent)}; the file has {len(names)}: {shown(names)}',
        )
    elif list(classes) != [name for name in names if name in requested]:
        text = f"metainfo['classes'] is {shown(tuple(classes))}, the file's order is {shown(names)}"
        found.add('order of classes differs', text, is_error=False)


def _check_kind(key: str, ids: list, found: Findings) -> None:
    """Refuse ids that evaluators cannot sort, or not hold in 64 bits."""
    numbers = [x for x in ids if isinstance(x, int)]
    texts = [x for x in ids if isinstance(x, str)]
    if numbers and texts:
        text = f'{key} ids are numbers, such as {shown(numbers[0])}, and texts, {shown(texts[0])}'
        found.add('ids of several kinds', text)
    for number in filter(lambda x: not is_number_id(x), numbers):
        found.add('ids of several kinds', f'{key} id {shown(number)} has more than 64 bits')


def _scan_images(images: list, report: CocoReport, found: Findings) -> dict:
    """(width, height) by image id; a bad size is (inf, inf)."""
    sizes: dict = {}
    first: dict[str, object] = {}
    for index, image in enumerate(images):
        where = f'images[{index}]'
        if found.lacks_keys(image, where, ('id', 'width', 'height')):
            report.bad_images.add(index)
            continue
        number = image['id']
        name = image.get('file_name', image.get('coco_url'))
        size = image['width'], image['height']
        kind, text = _image_fault(image, name, sizes)
        if kind:
            found.add(kind, f'{where} (id {shown(number)}) {text}')
            report.bad_images.add(index)
        if not is_id(number):
            continue
        report.images.setdefault(number, (name, *size))
        sizes.setdefault(number, size if not kind or is_size(*size) else (inf, inf))
        if kind:
            continue
        if os.path.isabs(name):
            text = f'{where} (id {shown(number)}) has {shown(name)}'
            found.add('absolute file name', text, is_error=False)
        path = os.path.normpath(name) if './' in name or '//' in name else name
        if first.setdefault(path, number) != number:
            text = f'{shown(name)} has the ids {shown(first[path])} and {shown(number)}'
            found.add('one picture under two ids', text, is_error=False)
    return sizes


def _image_fault(image: dict, name: object, known: Collection) -> tuple[str, str]:
    """Kind and text of what is wrong with an image; ``known`` are earlier ids."""
    if not is_id(image['id']):
        return 'malformed value', f'id is {shown(image["id"])}'
    if image['id'] in known:
        return 'duplicate image id', 'occurs again'
    if not is_size(image['width'], image['height']):
        text = f'has width {shown(image["width"])}, height {shown(image["height"])}'
        return 'malformed value', text
    if 'file_name' not in image:
        has_url = isinstance(image.get('coco_url'), str)
        return ('', '') if has_url else ('missing key', "has no 'file_name'")
    # mmdet joins a path from the root with a folder as it is.
    fault = path_fault(name.lstrip('/') if isinstance(name, str) else name)
    if fault is None:
        return '', ''
    return 'unusable file name', f'has file_name {shown(name)}, which {fault}'


def is_size(width: object, height: object) -> bool:
    """Whether an image can have these sides."""
    are_numbers = is_number(width) and is_number(height)
    return are_numbers and 0 < width <= LARGEST_PIXEL and 0 < height <= LARGEST_PIXEL
