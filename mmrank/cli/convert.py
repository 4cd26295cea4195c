"""Convert labels of YOLO, VOC or CSV to a COCO annotation file, and check it.

    mmrank convert labels --from yolo --images images --out train.json

SOURCE is the folder of the .txt files of yolo (class, centre and size in fractions; of yolo-seg
class and polygon) or of the .xml files of voc, and the file of csv. Its columns are image, class
and xmin, ymin, xmax, ymax or x, y, width, height; without a header image, xmin, ymin, xmax, ymax,
class. VOC counts pixels from 1, unless a corner is at 0. Difficult objects of VOC and groups of
OpenImages become crowds, which are neither trained on nor counted.

exit status: 0 written, 1 an error in the labels, 2 nothing could be read or written.
"""

import json
import sys
from pathlib import Path

import numpy as np
import yaml

from mmrank.annotations.check import inspect_coco
from mmrank.annotations.label_files import READERS, SLACK, Faults, Label, Picture, Pictures
from mmrank.annotations.text_tables import read_lines
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError
from mmrank.files import check_output, read_text, write_atomically


def _read_classes(path: str | None) -> list[str]:
    """Names by number: of a data.yaml of YOLO, a COCO file, or a text with a name a line."""
    if path is None:
        return []
    text = read_text(path, '--classes', 'save it as UTF-8')
    names: object = [x.strip() for x in text.split('\n') if x.strip()]
    try:
        if path.endswith(('.yaml', '.yml')):
            names = yaml.safe_load(text)['names']
        elif path.endswith('.json'):
            names = [x['name'] for x in json.loads(text)['categories']]
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        what = f'--classes {path} cannot be read: {type(error).__name__}: {error}'
        fix = "a .yaml with 'names', a COCO file, or a text file with a name a line"
        raise UserError(what, fix) from error
    if isinstance(names, dict):
        numbered = {str(number): name for number, name in names.items()}
        numbers = [*map(str, range(len(names)))]
        lacking = [x for x in numbers if x not in numbered]
        if lacking:
            raise UserError(
                f'--classes {path} has no name for {lacking[0]}, only for '
                f'{", ".join(numbered):.200}. Fix: names of all numbers from 0 on'
            )
        names = [numbered[x] for x in numbers]
    is_list = isinstance(names, list) and all(isinstance(x, str) for x in names)
    if not is_list or not names or len(set(names)) < len(names):
        fix = 'names, each once, in quotes where YAML reads another thing, such as "yes" or "1"'
        raise UserError(f'--classes {path} holds {names!r:.200}', fix)
    return names


def _make_document(
    found: list[tuple[Picture, list[Label]]], classes: list[str], faults: Faults
) -> dict:
    """The COCO document; without ``classes`` the names in order of the alphabet."""
    names = classes or sorted({x.name for _, labels in found for x in labels})
    numbers = {name: number for number, name in enumerate(names, start=1)}
    pictures = sorted({picture for picture, _ in found})
    ids = {picture: number for number, picture in enumerate(pictures, start=1)}
    annotations = [
        dict(id=0, image_id=ids[picture], **fields)
        for picture, labels in found
        for label in labels
        for fields in faults.of(_annotation, label, picture, numbers)
    ]
    for number, ann in enumerate(annotations, start=1):
        ann['id'] = number
    images = [dict(id=ids[x], file_name=x.name, width=x.width, height=x.height) for x in pictures]
    categories = [dict(id=number, name=name) for name, number in numbers.items()]
    return dict(images=images, annotations=annotations, categories=categories)


def _annotation(label: Label, picture: Picture, numbers: dict[str, int]) -> dict:
    """Class, area and box, of which only what is in the picture."""
    if label.name not in numbers:
        what = f'{label.where}: class {label.name!r} is not in --classes: {", ".join(numbers):.200}'
        raise UserError(what, 'add it at the end, or correct the label')
    x1, y1, x2, y2 = label.corners
    left, right = (min(max(x, 0), picture.width) for x in (x1, x2))
    top, bottom = (min(max(x, 0), picture.height) for x in (y1, y2))
    overhang = max(-x1, -y1, x2 - picture.width, y2 - picture.height)
    if right <= left or bottom <= top or overhang > max(1, SLACK * max(picture[1:])):
        raise UserError(
            f'{label.where}: a box from ({x1:g}, {y1:g}) to ({x2:g}, {y2:g}) is not in '
            f'{picture.name}, {picture.width} x {picture.height} pixels',
            'the first corner left of and above the second, in the image, or remove the label',
        )
    area = (right - left) * (bottom - top)
    if label.polygon:  # by the shoelace formula
        x, y = np.array(label.polygon).reshape(-1, 2).T
        area = float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)
    return dict(
        category_id=numbers[label.name],
        bbox=[left, top, right - left, bottom - top],
        area=area,
        segmentation=[list(label.polygon)] if label.polygon else [],
        iscrowd=int(label.is_crowd),
    )


def main() -> int:
    parser = tool_parser(__doc__)
    add = parser.add_argument
    add('source', type=Path, help='folder of the labels, for csv the file')
    add('--from', dest='form', required=True, choices=READERS, help='form of the labels')
    add('--images', type=Path, required=True, help='folder of the images')
    add('--out', required=True, help='COCO file to write')
    classes = 'names in the order of the labels: a data.yaml, a COCO file, or a name a line'
    add('--classes', metavar='FILE', help=classes)
    only = 'text file with the names of the images to take, one a line'
    add('--list', metavar='FILE', help=only)
    args = parser.parse_args()
    kind = 'file' if args.form == 'csv' else 'folder'
    if not (args.source.is_file() if args.form == 'csv' else args.source.is_dir()):
        raise UserError(f'{args.source} is not a {kind}. Fix: the {kind} with the labels')
    sources = [args.source, *filter(None, (args.classes, args.list))]
    check_output(args.out, *sources)
    pictures = Pictures(args.images)
    classes = _read_classes(args.classes)
    faults = Faults()
    if args.list:
        names = [x.strip() for x in read_lines(args.list) if x.strip()]
        chosen = [y.name for x in names for y in faults.of(pictures.find, x, args.list)]
        pictures.wanted = dict.fromkeys(sorted(chosen))
    found = [*READERS[args.form](args.source, pictures, classes, faults)]
    found = [x for x in found if x[0].name in pictures.wanted]
    if pictures.guessed:
        name, picture = next(iter(pictures.guessed.items()))
        number = len(pictures.guessed)
        print(f'{number} images are found by the end of their path alone: {name!r} is {picture}.')
    document = _make_document(found, classes, faults)
    faults.raise_if_any()
    report = inspect_coco(document, args.out, args.images)
    if report.problems:
        print(report.describe(report.problems), file=sys.stderr)
    if not report.ok:
        return 1
    write_atomically(json.dumps(document).encode(), args.out)
    names = ', '.join(report.counts)
    print(
        f'Wrote {args.out}: {report.num_images} images, {report.num_empty_images} of them without '
        f'objects; {report.num_annotations} objects of {len(report.counts)} classes: {names}'
    )
    left_out = len(pictures.names) - report.num_images
    text = f'{left_out} of {len(pictures.names)} images left out, which no label or list names'
    print(f'{args.images}: {text}{pictures.passed_over()}')
    return 0
