"""VOC's XML files."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree  # nosec B405

from mmrank.annotations.labels.pictures import (
    Faults,
    Label,
    Picture,
    Pictures,
    compare_size,
    label_files,
    number_in,
    stem_of,
)
from mmrank.errors import UserError


def read_voc(
    source: Path, pictures: Pictures, classes: list[str], faults: Faults
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of .xml files, which name their pictures."""
    files = label_files(source, '.xml', pictures).values()
    found = [x for file in files for x in faults.of(_read_xml, file, source, pictures, faults)]
    from_zero = any(0 in x.corners for _, labels in found for x in labels)
    print(f'Corners count from {0 if from_zero else 1}.')
    for picture, labels in found:
        if not from_zero:
            for label in labels:
                # Pixels 1 to n, both of the object, as edges 0 to n.
                label.corners[0] -= 1
                label.corners[1] -= 1
        yield picture, labels


def _read_xml(
    path: Path, source: Path, pictures: Pictures, faults: Faults
) -> tuple[Picture, list[Label]]:
    data = path.read_bytes()
    if b'<!ENTITY' in data:  # entities can fill the memory
        raise UserError(f'{path} defines entities, and labels need none. Fix: remove the file')
    try:
        root = ElementTree.fromstring(data)  # nosec B314
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UserError(f'{path} is not XML: {error}. Fix: export or fetch it again') from error
    # Copied files often keep the name of another picture.
    named = root.findtext('filename', path.stem).strip()
    if stem_of(named) != path.stem and pictures.matches(path.stem):
        named = path.stem
    beside = (path.relative_to(source).parent / named).as_posix()
    name = beside if pictures.matches(beside) else named
    picture = pictures.find(name, str(path), str(path))
    stated = [root.findtext(f'size/{x}', '').strip() for x in ('width', 'height')]
    compare_size(picture, stated, str(path))
    labels = []
    for number, item in enumerate(root.iter('object'), start=1):
        labels += faults.of(_voc_label, item, f'{path}, object {number}')
    return picture, labels


def _voc_label(item: ElementTree.Element, where: str) -> Label:
    texts = [item.findtext(f'bndbox/{x}') for x in ('xmin', 'ymin', 'xmax', 'ymax')]
    name = item.findtext('name', '').strip()
    if None in texts or not name:
        raise UserError(f'{where} lacks its name or bndbox. Fix: label it, or remove it')
    corners = [number_in(x or '', where) for x in texts]
    return Label(where, name, corners, is_crowd=item.findtext('difficult', '').strip() == '1')
