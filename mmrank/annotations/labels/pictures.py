"""Labels, the pictures that they are of, and what is wrong with either."""

import math
import posixpath
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from mmrank.annotations.images import IMAGE_SUFFIXES, image_size
from mmrank.errors import UserError
from mmrank.files import find_files

#: Endings of files that need no word where labels, or images, are looked for.
_EXPECTED = (*IMAGE_SUFFIXES, '.txt', '.xml', '.csv', '.json', '.yaml', '.yml')
#: Rounding of a label may put an edge so far outside, in fractions of a side.
SLACK = 0.01


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
            what = f'{where}: {owner} and {self._owners[found[0]]} would both be of {found[0]}'
            fix = 'the path of each image within the folder, or one label file for it'
            raise UserError(what, fix)
        return self.open(found[0])

    def open(self, name: str) -> Picture:
        """Name and size of a file, turned as loaders turn it."""
        try:
            return Picture(name, *image_size(self.folder / name))
        except ValueError as error:
            fix = 'a whole image in its place, or remove it'
            raise UserError(f'{self.folder / name}: {error}', fix) from error


def label_files(source: Path, ending: str, pictures: Pictures) -> dict[str, Path]:
    """Files of labels by the name of their picture without its ending."""
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


def stem_of(name: str) -> str:
    """A name without the ending of an image; what follows another dot belongs to it."""
    stem, dot, ending = name.rpartition('.')
    return stem if f'{dot}{ending}'.lower() in IMAGE_SUFFIXES else name


class Label(NamedTuple):
    """An object: corners in pixels of the picture as it is shown."""

    where: str
    name: str
    corners: list[float]
    polygon: Sequence[float] = ()
    is_crowd: bool = False


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


def compare_size(picture: Picture, texts: Sequence[str], where: str) -> None:
    """Refuse labels of a picture of another size; an empty one or ``0`` is none."""
    stated = tuple(number_in(x or '0', where) for x in texts)
    actual = picture.width, picture.height
    if stated not in (actual, (0, 0)):
        turned = ', its sides swapped: EXIF turns it' if stated == actual[::-1] else ''
        raise UserError(
            f'{where}: the size is {" x ".join(texts)}, and {picture.name} is '
            f'{picture.width} x {picture.height}{turned}. Fix: the image that was annotated'
        )


def is_numeric(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def number_in(text: str, where: str) -> float:
    """The finite number that a text is; ``where`` is for the message if it is not."""
    if not is_numeric(text):
        fix = 'a finite number; in YOLO with blanks'
        raise UserError(f'{where}: {text!r:.80} is not a number', fix)
    return float(text)
