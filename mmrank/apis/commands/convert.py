"""Convert labels of YOLO, VOC or CSV to a COCO annotation file, and check it.

    mmrank convert labels --from yolo --images images --out train.json

The source of yolo is the folder of its .txt files (class, centre and size in fractions, or class
and polygon), of voc the folder of its .xml files, of csv the file: columns image, class and xmin,
ymin, xmax, ymax or x, y, width, height; without column names image, xmin, ymin, xmax, ymax, class.
Sizes of images are read from the pictures, turned as loaders turn them. VOC counts pixels from 1
and both ends, unless a corner is at 0. Objects that VOC calls difficult become crowds, which are
neither trained on nor counted. Nothing is written if the result does not pass check_coco.py.

exit status: 0 written, 1 an error in the labels, 2 nothing could be read or written.
"""

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree  # nosec B405
from xml.parsers import expat

import yaml

from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.image_header import IMAGE_SUFFIXES, image_size
from mmrank.errors import UserError, show_user_errors
from mmrank.files import check_output, write_atomically

#: Columns of a CSV file by their usual names, in small letters.
COLUMNS = {
    'image': ('image', 'filename', 'file_name', 'image_name', 'image_path', 'imageid', 'path'),
    'class': ('class', 'label', 'class_name', 'category', 'labelname', 'label_name', 'name'),
    'x1': ('xmin', 'x1', 'x_min', 'left'),
    'y1': ('ymin', 'y1', 'y_min', 'top'),
    'x2': ('xmax', 'x2', 'x_max', 'right'),
    'y2': ('ymax', 'y2', 'y_max', 'bottom'),
}
CORNERS = ('x1', 'y1', 'x2', 'y2')
BOX = {'x1': ('x', 'bbox_x'), 'y1': ('y', 'bbox_y')}
BOX |= {
    'x2': ('w', 'width', 'bbox_w', 'bbox_width'),
    'y2': ('h', 'height', 'bbox_h', 'bbox_height'),
}
#: Rounding of a label may put an edge so far outside, in fractions of a side.
SLACK = 0.01


class Label(NamedTuple):
    """An object: corners in pixels of the picture as it is shown."""

    where: str
    name: str
    corners: Sequence[float]
    polygon: Sequence[float] = ()
    is_crowd: bool = False


class Picture(NamedTuple):
    """An image file."""

    name: str  # its path in the folder of images, with slashes
    width: int
    height: int


class Pictures:
    """Image files of a folder, found by name, by path or by name without ending."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f'--images {folder} is not a folder. Fix: the folder of the images')
        self.folder = folder
        paths = sorted(x for x in folder.rglob('*') if x.suffix.lower() in IMAGE_SUFFIXES)
        if not paths:
            raise UserError(f'--images {folder} has no image. Fix: the folder of the images')
        self.names = [x.relative_to(folder).as_posix() for x in paths]
        self._by_key: dict[str, list[str]] = {}
        for name in self.names:
            for key in {name, name.rpartition('/')[2], _stem(name), _stem(name.rpartition('/')[2])}:
                self._by_key.setdefault(key, []).append(name)
        self._known: dict[str, Picture] = {}

    def find(self, name: str, where: str) -> Picture:
        """The picture that a label names."""
        plain = name.replace('\\', '/')
        base = plain.rpartition('/')[2]
        keys = plain, base, _stem(plain), _stem(base)
        found = next((self._by_key[key] for key in keys if key in self._by_key), [])
        if len(found) != 1:
            what = f'is any of {found[:3]}' if found else 'is not there'
            raise UserError(
                f'{where}: image {name!r} {what} in {self.folder}. Fix: --images, the folder that '
                'has the images of these labels and no others of their names'
            )
        return self.open(found[0])

    def has(self, stem: str) -> bool:
        """Whether a picture has this name without its ending."""
        return stem in self._by_key

    def open(self, name: str) -> Picture:
        """Name and size of a file, turned as loaders turn it."""
        if name not in self._known:
            try:
                size = image_size(self.folder / name)
            except ValueError as error:
                raise UserError(
                    f'{self.folder / name}: {error}. Fix: fetch it again, or remove it'
                ) from error
            self._known[name] = Picture(name, *size)
        return self._known[name]


def _stem(name: str) -> str:
    return name.rpartition('.')[0] or name


#: Reads a source: each picture with its labels; a picture may come several times.
Reader = Callable[[Path, Pictures, list[str]], Iterator[tuple[Picture, list[Label]]]]


def read_yolo(
    source: Path, pictures: Pictures, classes: list[str]
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of .txt files; a picture without a file has no object."""
    files = {x.relative_to(source).with_suffix('').as_posix(): x for x in source.rglob('*.txt')}
    files.pop('classes', None)
    if not classes:
        raise UserError(
            'labels of YOLO have numbers for classes. Fix: --classes data.yaml, or a text file '
            'with a name a line'
        )
    if not files:
        raise UserError(f'{source} has no .txt file. Fix: the folder of the label files')
    stems = {_stem(x): x for x in pictures.names}
    for stem in sorted(files.keys() - stems.keys()):
        raise UserError(
            f'{files[stem]} has no image {stem}.jpg or .png in {pictures.folder}. Fix: --images, '
            'the folder whose images these labels are for'
        )
    for stem, name in stems.items():
        picture = pictures.open(name)
        labels = []
        for number, line in enumerate(_lines(files.get(stem)), start=1):
            if line.strip():
                where = f'{files[stem]}, line {number}'
                labels.append(_yolo_label(line.split(), where, picture, classes))
        yield picture, labels


def _yolo_label(words: list[str], where: str, picture: Picture, classes: list[str]) -> Label:
    values = [_number(x, where) for x in words]
    kind = values[0]
    if not kind.is_integer() or not 0 <= kind < len(classes):
        raise UserError(
            f'{where}: class {words[0]} is none of 0 to {len(classes) - 1}. Fix: all names in '
            '--classes, in the order of their numbers'
        )
    shares = values[1:]
    if len(shares) != 4 and (len(shares) < 6 or len(shares) % 2):
        raise UserError(
            f'{where} has {len(values)} numbers. Fix: class, x, y, width and height, or class and '
            'a polygon of three points or more; labels have no confidence'
        )
    points = shares
    if len(shares) == 4:
        x, y, w, h = shares
        points = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    wrong = next((x for x in points if not -SLACK <= x <= 1 + SLACK), None)
    if wrong is not None:
        raise UserError(
            f'{where} reaches to {wrong:g}, and YOLO has fractions of the sides, from 0 to 1. Fix: '
            'divide by width and height of the image, or correct the line'
        )
    scale = picture.width, picture.height
    points = [min(max(x, 0), 1) * scale[i % 2] for i, x in enumerate(points)]
    corners = [min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])]
    return Label(where, classes[int(kind)], corners, points if len(shares) > 4 else ())


def read_voc(
    source: Path, pictures: Pictures, classes: list[str]
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of .xml files."""
    files = sorted(source.rglob('*.xml'))
    if not files:
        raise UserError(f'{source} has no .xml file. Fix: the folder of the label files')
    found = [(picture, labels) for picture, labels in (_read_xml(x, pictures) for x in files)]
    from_zero = any(0 in x.corners for _, labels in found for x in labels)
    print(f'Corners count from {0 if from_zero else 1}.')
    for picture, labels in found:
        if from_zero:
            yield picture, labels
        else:
            yield picture, [_from_one(x) for x in labels]


def _from_one(label: Label) -> Label:
    """Pixels 1 to n, both of the object, as edges 0 to n."""
    x1, y1, x2, y2 = label.corners
    return label._replace(corners=(x1 - 1, y1 - 1, x2, y2))


def _parse_xml(path: Path) -> ElementTree.Element:
    """The root of an XML file. Entities, which can fill the memory, are refused."""
    parser = expat.ParserCreate()
    builder = ElementTree.TreeBuilder()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data

    def refuse(*_) -> None:
        raise UserError(f'{path} defines entities, and labels need none. Fix: remove the file')

    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(path.read_bytes(), True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise UserError(f'{path} is not XML: {error}. Fix: export or fetch it again') from error
    return builder.close()


def _read_xml(path: Path, pictures: Pictures) -> tuple[Picture, list[Label]]:
    root = _parse_xml(path)
    # Copied files often keep the name of another picture.
    named = root.findtext('filename', path.stem).strip()
    is_own = _stem(named) == path.stem or not pictures.has(path.stem)
    picture = pictures.find(named if is_own else path.stem, str(path))
    stated = tuple(root.findtext(f'size/{x}', '0').strip() for x in ('width', 'height'))
    _compare_size(picture, stated, str(path))
    labels = []
    for number, item in enumerate(root.iter('object'), start=1):
        where = f'{path}, object {number}'
        texts = [item.findtext(f'bndbox/{x}') for x in ('xmin', 'ymin', 'xmax', 'ymax')]
        name = item.findtext('name', '').strip()
        if None in texts or not name:
            raise UserError(f'{where} lacks its name or bndbox. Fix: label it, or remove it')
        corners = [_number(x or '', where) for x in texts]
        is_crowd = item.findtext('difficult', '0').strip() == '1'
        labels.append(Label(where, name, corners, is_crowd=is_crowd))
    return picture, labels


def _compare_size(picture: Picture, stated: tuple[str, ...], where: str) -> None:
    """Refuse labels of a picture of another size; ``0`` is none."""
    actual = str(picture.width), str(picture.height)
    if stated not in (actual, ('0', '0')):
        turned = ', its sides swapped: EXIF turns it' if stated == actual[::-1] else ''
        raise UserError(
            f'{where}: the size is {" x ".join(stated)}, and {picture.name} is '
            f'{" x ".join(actual)}{turned}. Fix: the image that was annotated, or label it again'
        )


def read_csv(
    source: Path, pictures: Pictures, classes: list[str]
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of a table; a row of an image alone is an image without an object."""
    try:
        rows = [x for x in csv.reader(_lines(source)) if any(map(str.strip, x))]
    except csv.Error as error:
        raise UserError(f'{source} is not CSV: {error}. Fix: export or fetch it again') from error
    body = rows[1:] if rows and _has_header(rows[0]) else rows
    if not body:
        raise UserError(f'{source} has no row. Fix: the table of the labels')
    place, is_size = _places(rows[0], source)
    values = []
    for number, row in enumerate(body, start=len(rows) - len(body) + 1):
        where = f'{source}, row {number}'
        if len(row) <= max(place.values()):
            raise UserError(f'{where} has {len(row)} columns of {len(rows[0])}. Fix: complete it')
        cells = {key: row[index].strip() for key, index in place.items()}
        box = [cells[x] for x in CORNERS]
        corners = [_number(x, where) for x in box] if any(box) or cells['class'] else []
        if corners and is_size:
            corners[2:] = [corners[0] + corners[2], corners[1] + corners[3]]
        values.append((where, cells, corners))
    numbers = [x for _, _, corners in values for x in corners]
    in_fractions = bool(numbers) and max(numbers) <= 1 + SLACK
    for where, cells, corners in values:
        picture = pictures.find(cells['image'], where)
        if 'width' in cells:
            _compare_size(picture, (cells['width'], cells['height']), where)
        if in_fractions:
            scale = picture.width, picture.height
            corners = [x * scale[i % 2] for i, x in enumerate(corners)]
        if corners and not cells['class']:
            raise UserError(f'{where} has a box and no class. Fix: its class')
        yield picture, [Label(where, cells['class'], corners)] if corners else []


def _has_header(row: list[str]) -> bool:
    is_number = [x.strip().replace('.', '', 1).isdigit() or not x.strip() for x in row[1:5]]
    return len(row) != 6 or not all(is_number)


def _places(row: list[str], source: Path) -> tuple[dict[str, int], bool]:
    """Position of each column, and whether the last two are width and height of a box."""
    names = [x.strip().lower() for x in row]
    if not _has_header(row):
        return dict(zip(('image', *CORNERS, 'class'), range(6))), False
    for table in (COLUMNS, {**COLUMNS, **BOX}):
        place = {}
        for key, known in table.items():
            place[key] = next((i for i, x in enumerate(names) if x in known), -1)
        if min(place.values()) >= 0:
            is_size = table is not COLUMNS
            sides = {x: names.index(x) for x in ('width', 'height') if x in names and not is_size}
            return place | (sides if len(sides) == 2 else {}), is_size
    lacking = ', '.join(x for x, index in place.items() if index < 0)
    raise UserError(
        f'{source} has the columns {", ".join(row)[:200]}, and none for {lacking}. Fix: name them '
        'image, class, xmin, ymin, xmax, ymax, or x, y, width, height, with commas between'
    )


def _lines(path: Path | None) -> list[str]:
    """Lines of a text file; none without a file."""
    try:
        return [] if path is None else path.read_text(encoding='utf-8-sig').splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not UTF-8 text. Fix: save it as UTF-8') from error


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f'{where}: {text!r:.80} is not a number. Fix: a finite number')
    return value


def read_classes(path: str | None) -> list[str]:
    """Names by number: of a data.yaml of YOLO, a COCO file, or a text with a name a line."""
    if path is None:
        return []
    text = '\n'.join(_lines(Path(path)))
    names: object = [x.strip() for x in text.splitlines() if x.strip()]
    try:
        if path.endswith(('.yaml', '.yml')):
            names = yaml.safe_load(text)['names']
            if isinstance(names, dict):
                names = [names[number] for number in range(len(names))]
        elif path.endswith('.json'):
            names = [x['name'] for x in json.loads(text)['categories']]
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'--classes {path} cannot be read: {type(error).__name__}: {error}. Fix: a .yaml with '
            "'names', a COCO file, or a text file with a name a line"
        ) from error
    is_list = isinstance(names, list) and all(isinstance(x, str) for x in names)
    if not is_list or not names or len(set(names)) < len(names):
        raise UserError(f'--classes {path} holds {names!r:.200}. Fix: names, each once')
    return names


def make_document(
    found: list[tuple[Picture, list[Label]]], classes: list[str]
) -> tuple[dict, list[str]]:
    """The COCO document; without ``classes`` the names in order of the alphabet."""
    labels = [x for _, own in found for x in own]
    names = classes or sorted({x.name for x in labels})
    numbers = {name: number for number, name in enumerate(names, start=1)}
    pictures = sorted({picture for picture, _ in found})
    ids = {picture: number for number, picture in enumerate(pictures, start=1)}
    annotations = []
    for picture, own in found:
        for label in own:
            if label.name not in numbers:
                raise UserError(
                    f'{label.where}: class {label.name!r} is not in --classes: '
                    f'{", ".join(names)[:200]}. Fix: add it at the end, or correct the label'
                )
            box = _box(label, picture)
            annotations.append(
                dict(
                    id=len(annotations) + 1,
                    image_id=ids[picture],
                    category_id=numbers[label.name],
                    bbox=box,
                    area=_area(label.polygon) if label.polygon else box[2] * box[3],
                    segmentation=[list(label.polygon)] if label.polygon else [],
                    iscrowd=int(label.is_crowd),
                )
            )
    images = [dict(id=ids[x], file_name=x.name, width=x.width, height=x.height) for x in pictures]
    categories = [dict(id=number, name=name) for name, number in numbers.items()]
    return dict(images=images, annotations=annotations, categories=categories), names


def _box(label: Label, picture: Picture) -> list[float]:
    """x, y, width and height of what is in the picture."""
    x1, y1, x2, y2 = label.corners
    left, right = (min(max(x, 0), picture.width) for x in (x1, x2))
    top, bottom = (min(max(x, 0), picture.height) for x in (y1, y2))
    overhang = max(-x1, -y1, x2 - picture.width, y2 - picture.height)
    if right <= left or bottom <= top or overhang > max(1, SLACK * max(picture[1:])):
        raise UserError(
            f'{label.where}: a box from ({x1:g}, {y1:g}) to ({x2:g}, {y2:g}) is not in '
            f'{picture.name}, {picture.width} x {picture.height} pixels. Fix: the first corner '
            'left of and above the second, both in the image, or remove the label'
        )
    return [left, top, right - left, bottom - top]


def _area(polygon: Sequence[float]) -> float:
    """Area of a polygon by the shoelace formula."""
    xs = polygon[::2]
    ys = polygon[1::2]
    others = [*range(1, len(xs)), 0]
    return abs(sum(xs[i] * ys[j] - xs[j] * ys[i] for i, j in enumerate(others))) / 2


READERS: dict[str, Reader] = {'yolo': read_yolo, 'voc': read_voc, 'csv': read_csv}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('source', type=Path, help='folder of the labels, for csv the file')
    add('--from', dest='form', required=True, choices=READERS, help='form of the labels')
    add('--images', type=Path, required=True, help='folder of the images')
    add('--out', required=True, help='COCO file to write')
    classes = 'names in the order of the labels: a data.yaml, a COCO file, or a text, a name a line'
    add('--classes', metavar='FILE', help=classes)
    only = 'text with the names of the images to take, one a line, as of VOC in ImageSets'
    add('--list', metavar='FILE', help=only)
    return parser.parse_args()


@show_user_errors(OSError)
def main() -> int:
    args = parse_args()
    is_there = args.source.is_file() if args.form == 'csv' else args.source.is_dir()
    if not is_there:
        kind = 'file' if args.form == 'csv' else 'folder'
        raise UserError(f'{args.source} is not a {kind}. Fix: the {kind} with the labels')
    sources = [args.source, *filter(None, (args.classes, args.list))]
    check_output(args.out, *sources)
    pictures = Pictures(args.images)
    classes = read_classes(args.classes)
    found = [*READERS[args.form](args.source, pictures, classes)]
    if args.list:
        wanted = {pictures.find(x.strip(), args.list) for x in _lines(Path(args.list)) if x.strip()}
        found = [x for x in found if x[0] in wanted]
    document, names = make_document(found, classes)
    report = inspect_coco(document, args.out, args.images)
    if report.problems:
        print(report.describe(report.problems), file=sys.stderr)
    if not report.ok:
        return 1
    write_atomically(json.dumps(document).encode(), args.out)
    print(
        f'Wrote {args.out}: {report.num_images} images, {report.num_empty_images} of them without '
        f'objects; {report.num_annotations} objects of {len(names)} classes: {", ".join(names)}'
    )
    return 0
