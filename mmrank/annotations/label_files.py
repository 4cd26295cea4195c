"""Labels of other tools: YOLO's text files, VOC's XML files and tables, with their pictures."""

import json
import math
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize
from xml.etree import ElementTree  # nosec B405

import yaml

from mmrank.annotations.image_header import IMAGE_SUFFIXES, image_size
from mmrank.annotations.text_tables import read_lines, read_rows
from mmrank.errors import UserError
from mmrank.files import find_files, read_text

CORNERS = ('x1', 'y1', 'x2', 'y2')
SIZED = ('x', 'y', 'width', 'height')
#: Columns of a CSV file by other usual names, in small letters.
ALIASES = {
    alias: key
    for key, aliases in {
        'image': 'filename file_name image_name image_path imageid path',
        'class': 'label class_name category labelname label_name name',
        'x1': 'xmin x_min left',
        'y1': 'ymin y_min top',
        'x2': 'xmax x_max right',
        'y2': 'ymax y_max bottom',
        'x': 'bbox_x',
        'y': 'bbox_y',
        'width': 'w bbox_w bbox_width',
        'height': 'h bbox_h bbox_height',
    }.items()
    for alias in aliases.split()
}
#: Endings of files that need no word where labels, or images, are looked for.
_EXPECTED = (*IMAGE_SUFFIXES, '.txt', '.xml', '.csv', '.json', '.yaml', '.yml')
#: Rounding of a label may put an edge so far outside, in fractions of a side.
SLACK = 0.01


class Label(NamedTuple):
    """An object: corners in pixels of the picture as it is shown."""

    where: str
    name: str
    corners: list[float]
    polygon: Sequence[float] = ()
    is_crowd: bool = False


class Picture(NamedTuple):
    """An image file."""

    name: str  # its path in the folder of images, with slashes
    width: int
    height: int


class Pictures:
    """Image files of a folder, by path, name or name without ending, in any form of Unicode."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f'--images {folder} is not a folder. Fix: the folder of the images')
        self.folder = folder
        self._others: dict[str, set[str]] = defaultdict(set)
        self.names = self.files_of(folder, IMAGE_SUFFIXES)
        if not self.names:
            raise UserError(f'{folder} has no image{self.passed_over()}', 'their folder')
        #: Names of those to convert.
        self.wanted = dict.fromkeys(self.names)
        self._by_key: dict[str, list[str]] = defaultdict(list)
        for name in self.names:
            base = posixpath.basename(normalize('NFC', name))
            for key in {base, stem_of(base)}:
                self._by_key[key].append(name)
        self._folders = {posixpath.basename(posixpath.dirname(name)) for name in self.names}
        self._owners: dict[str, str] = {}
        #: Files by names in labels that have another path.
        self.guessed: dict[str, str] = {}

    def files_of(self, folder: Path, endings: tuple[str, ...]) -> list[str]:
        """Names of files of the images or the labels; what is passed over is noted."""
        names, others = find_files(folder, endings)
        for kind, left_out in others.items():
            if kind not in _EXPECTED:
                self._others[kind].update(str(folder / name) for name in left_out)
        return names

    def passed_over(self) -> str:
        """What is in the folders and is neither an image nor a label, to follow a sentence."""
        kinds = self._others.items()
        texts = [f'{len(paths)} {kind}, such as {min(paths)}' for kind, paths in kinds]
        return f'; passed over: {"; ".join(texts)}' if texts else ''

    def matches(self, name: str) -> list[str]:
        """The images whose path is ``name``, or ends with it, or is its end; the longest."""
        *folders, base = normalize('NFC', name).split('/')
        for key in (base, stem_of(base)):
            found = defaultdict(list)
            for picture in self._by_key.get(key, ()):
                parts = normalize('NFC', picture).split('/')[:-1]
                if folders and not parts and folders[-1] in self._folders:
                    continue  # of a folder that is there
                common = min(len(parts), len(folders))
                if parts[len(parts) - common :] == folders[len(folders) - common :]:
                    found[common, parts == folders].append(picture)
            if found:
                return found[max(found)]
        return []

    def find(self, name: str, where: str, owner: str | None = None) -> Picture:
        """The picture that a label or a list names by its path, name or name without ending.

        ``where`` is for messages. No two owners, which are files or paths, may share a picture.
        """
        plain = posixpath.normpath(name.replace('\\', '/'))
        found = self.matches(plain)
        if len(found) != 1:
            near = self._by_key.get(stem_of(posixpath.basename(plain)), [])
            what = f'is not there, though {near[0]} is,' if near else 'is not there'
            what = f'is any of {found[:3]}' if found else what
            raise UserError(
                f'{where}: image {name!r} {what} in {self.folder}{self.passed_over()}',
                'the folder that has the images of these labels alone, for convert as --images',
            )
        if plain not in (found[0], stem_of(found[0])):
            self.guessed[name] = found[0]
        if owner and self._owners.setdefault(found[0], owner) != owner:
            raise UserError(
                f'{where}: {owner} and {self._owners[found[0]]} would both be of {found[0]}',
                'the path of each image within the folder, or one label file for it',
            )
        return self.open(found[0])

    def open(self, name: str) -> Picture:
        """Name and size of a file, turned as loaders turn it."""
        try:
            return Picture(name, *image_size(self.folder / name))
        except ValueError as error:
            fix = 'a whole image in its place, or remove it'
            raise UserError(f'{self.folder / name}: {error}', fix) from error


def read_classes(path: str | None) -> list[str]:
    """Names by number: of a data.yaml of YOLO, a COCO file, or a text with a name a line."""
    if path is None:
        return []
    text = read_text(path, 'names of classes', 'save it as UTF-8')
    names: object = [x.strip() for x in text.split('\n') if x.strip()]
    try:
        if path.endswith(('.yaml', '.yml')):
            names = yaml.safe_load(text)['names']
        elif path.endswith('.json'):
            names = [x['name'] for x in json.loads(text)['categories']]
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        what = f'{path} cannot be read: {type(error).__name__}: {error}'
        fix = "a .yaml with 'names', a COCO file, or a text file with a name a line"
        raise UserError(what, fix) from error
    if isinstance(names, dict):
        numbered = {str(number): name for number, name in names.items()}
        numbers = [*map(str, range(len(names)))]
        lacking = [x for x in numbers if x not in numbered]
        if lacking:
            raise UserError(
                f'{path} has no name for {lacking[0]}, only for '
                f'{", ".join(numbered):.200}. Fix: names of all numbers from 0 on'
            )
        names = [numbered[x] for x in numbers]
    is_list = isinstance(names, list) and all(isinstance(x, str) for x in names)
    if not is_list or not names or len(set(names)) < len(names):
        fix = 'names, each once, in quotes where YAML reads another thing, such as "yes" or "1"'
        raise UserError(f'{path} holds {names!r:.200}', fix)
    return names


def stem_of(name: str) -> str:
    """A name without the ending of an image; what follows another dot belongs to it."""
    stem, dot, ending = name.rpartition('.')
    return stem if f'{dot}{ending}'.lower() in IMAGE_SUFFIXES else name


class Faults(list):
    """Messages of the labels that cannot be read."""

    def of(self, read: Callable, *args: object) -> list:
        """What ``read`` returns, in a list; none and a message if it refuses its label."""
        try:
            return [read(*args)]
        except UserError as error:
            self.append(str(error))
            return []

    def raise_if_any(self) -> None:
        """Raise the first message, with what is wrong with the others."""
        if not self:
            return
        first, *texts = dict.fromkeys(self)
        others = [text.partition('. Fix:')[0] for text in texts[:49]]
        if len(texts) > 49:
            others.append(f'and {len(texts) - 49} more')
        raise UserError('\n  likewise '.join([first, *others]))


#: Reads a source: each picture with its labels; a picture may come several times.
Reader = Callable[[Path, Pictures, list[str], Faults], Iterator[tuple[Picture, list[Label]]]]


def _read_yolo(
    source: Path, pictures: Pictures, classes: list[str], faults: Faults, polygons: bool = False
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of .txt files, also in ``labels`` beside ``images``; without a file: no object."""
    if not classes:
        fix = '--classes data.yaml, or a text file with a name a line'
        raise UserError('labels of YOLO have numbers for classes', fix)
    files = _label_files(source, '.txt', pictures)
    stems = {}
    own_files = {}
    for name in pictures.names:
        stem = normalize('NFC', stem_of(name))
        if stem not in files:
            head, folder, tail = f'/{stem}'.rpartition('/images/')
            stem = f'{head}/labels/{tail}'[1:] if folder else stem
        own_files[name] = files.get(stem)
        other = stems.setdefault(stem, name)
        if other != name and stem in files:
            fix = 'remove the image that was not labelled'
            raise UserError(f'{files[stem]} would be of {other} and of {name}', fix)
    for stem in sorted(files.keys() - stems.keys()):
        words = next((x.split() for x in read_lines(files[stem]) if x.strip()), [])
        if len(words) < 5 or not all(map(_is_number, words)):
            print(f'Left out, since it has no labels: {files[stem]}')
            continue
        what = f'{files[stem]} has no image {stem}.jpg or .png in {pictures.folder}'
        faults.append(
            f'{what}{pictures.passed_over()}. Fix: the image, or its folder as --images of convert'
        )
    ends = set()
    for name in pictures.wanted:
        file = own_files[name]
        for picture in faults.of(pictures.open, name):
            labels = []
            for number, line in enumerate(read_lines(file) if file else (), start=1):
                if words := line.split():
                    args = words, f'{file}, line {number}', picture, classes, polygons
                    labels += faults.of(_yolo_label, *args)
                    if polygons and len(words) != 5:
                        ends.add(words[-1] in ('0', '1'))
            yield picture, labels
    if ends == {True}:
        faults.append(
            f'{source}: each polygon ends with 0 or 1, as the number of a track does. Fix: no '
            'confidence and track; a corner at the edge as 1.0'
        )


def _label_files(source: Path, ending: str, pictures: Pictures) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for name in pictures.files_of(source, (ending,)):
        stem = normalize('NFC', name[: -len(ending)])
        if stem in files:
            what = f'{files[stem]} and {source / name} would both be of the image {stem}'
            raise UserError(what, 'remove one of them')
        files[stem] = source / name
    if not files:
        raise UserError(f'{source} has no {ending} file{pictures.passed_over()}', 'their folder')
    return files


def _yolo_label(
    words: list[str], where: str, picture: Picture, classes: list[str], polygons: bool
) -> Label:
    kind, *shares = (_number(x, where) for x in words)
    if not kind.is_integer() or not 0 <= kind < len(classes):
        what = f'{where}: class {words[0]} is none of 0 to {len(classes) - 1}'
        raise UserError(what, 'all names of classes, in the order of their numbers')
    is_polygon = polygons and len(shares) >= 6 and len(shares) % 2 == 0
    if len(shares) != 4 and not is_polygon:
        fix = 'class, x, y, width and height alone; for class and a polygon --from yolo-seg'
        raise UserError(f'{where} has {len(words)} numbers', fix)
    points = shares
    if not is_polygon:
        x, y, w, h = shares
        points = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    wrong = next((x for x in points if not -SLACK <= x <= 1 + SLACK), None)
    if wrong is not None:
        what = f'{where} reaches to {wrong:g}, and YOLO has fractions of the sides, from 0 to 1'
        raise UserError(what, 'divide by width and height of the image, or correct the line')
    scale = picture.width, picture.height
    points = [min(max(x, 0), 1) * scale[i % 2] for i, x in enumerate(points)]
    if not is_polygon:
        return Label(where, classes[int(kind)], points)
    corners = [min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])]
    return Label(where, classes[int(kind)], corners, points)


def _read_voc(
    source: Path, pictures: Pictures, classes: list[str], faults: Faults
) -> Iterator[tuple[Picture, list[Label]]]:
    files = _label_files(source, '.xml', pictures).values()
    found = [x for file in files for x in faults.of(_read_xml, file, source, pictures, faults)]
    from_zero = any(0 in x.corners for _, labels in found for x in labels)
    print(f'Corners count from {0 if from_zero else 1}.')
    for picture, labels in found:
        for label in labels if not from_zero else ():
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
    _compare_size(picture, stated, str(path))
    labels = []
    for number, item in enumerate(root.iter('object'), start=1):
        labels += faults.of(_voc_label, item, f'{path}, object {number}')
    return picture, labels


def _voc_label(item: ElementTree.Element, where: str) -> Label:
    texts = [item.findtext(f'bndbox/{x}') for x in ('xmin', 'ymin', 'xmax', 'ymax')]
    name = item.findtext('name', '').strip()
    if None in texts or not name:
        raise UserError(f'{where} lacks its name or bndbox. Fix: label it, or remove it')
    corners = [_number(x or '', where) for x in texts]
    return Label(where, name, corners, is_crowd=item.findtext('difficult', '').strip() == '1')


def _compare_size(picture: Picture, texts: Sequence[str], where: str) -> None:
    """Refuse labels of a picture of another size; an empty one or ``0`` is none."""
    stated = tuple(_number(x or '0', where) for x in texts)
    actual = picture.width, picture.height
    if stated not in (actual, (0, 0)):
        turned = ', its sides swapped: EXIF turns it' if stated == actual[::-1] else ''
        raise UserError(
            f'{where}: the size is {" x ".join(texts)}, and {picture.name} is '
            f'{picture.width} x {picture.height}{turned}. Fix: the image that was annotated'
        )


def _read_csv(
    source: Path, pictures: Pictures, classes: list[str], faults: Faults
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of a table; a row of an image alone is an image without an object."""
    rows = [*read_rows(source)]
    names = ['image', *CORNERS, 'class']
    first = rows[0][1] if rows else names
    # An image without objects has no numbers.
    if len(first) != 6 or not all(not x or _is_number(x) for x in first[1:5]):
        names = [x.lower() for x in first]
        rows = rows[1:]
    keys = [ALIASES.get(x, x) for x in names]
    box = SIZED if 'x' in keys and 'x2' not in keys else CORNERS
    lacking = [x for x in ('image', 'class', *box) if x not in keys]
    if lacking or not rows:
        raise UserError(
            f'{source} has the columns {", ".join(names)[:200]} and {len(rows)} rows',
            'image, class, xmin, ymin, xmax, ymax, or x, y, width, height, with commas between',
        )
    values = []
    for where, row in rows:
        cells = dict([*zip(keys, row)][::-1])  # the first of two columns of one meaning
        values += faults.of(_csv_row, cells, where, box)
    numbers = [x for _, _, corners in values for x in corners]
    in_fractions = bool(numbers) and max(numbers) <= 1 + SLACK
    for cells, where, corners in values:
        yield from faults.of(_csv_label, cells, where, corners, pictures, in_fractions)


def _csv_row(cells: dict, where: str, box: Sequence[str]) -> tuple[dict, str, list[float]]:
    if not any(cells.get(x) for x in ('class', *box)):
        return cells, where, []
    corners = [_number(cells.get(x, ''), where) for x in box]
    if not cells.get('class'):
        raise UserError(f'{where} has a box and no class. Fix: its class')
    if box is SIZED:
        corners[2:] = [corners[0] + corners[2], corners[1] + corners[3]]
    return cells, where, corners


def _csv_label(
    cells: dict, where: str, corners: list[float], pictures: Pictures, in_fractions: bool
) -> tuple[Picture, list[Label]]:
    picture = pictures.find(cells['image'], where, posixpath.normpath(cells['image']))
    if 'x1' in cells and 'height' in cells:
        _compare_size(picture, (cells.get('width', ''), cells['height']), where)
    if in_fractions:
        scale = picture.width, picture.height
        corners = [x * scale[i % 2] for i, x in enumerate(corners)]
    label = Label(where, cells['class'], corners, (), cells.get('isgroupof') == '1')
    return picture, [label] if corners else []


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(text: str, where: str) -> float:
    if not _is_number(text):
        fix = 'a finite number; in YOLO with blanks'
        raise UserError(f'{where}: {text!r:.80} is not a number', fix)
    return float(text)


READERS: dict[str, Reader] = {
    'yolo': _read_yolo,
    'yolo-seg': partial(_read_yolo, polygons=True),
    'voc': _read_voc,
    'csv': _read_csv,
}
