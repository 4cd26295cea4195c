"""Readers of the published lists of retrieval images, and of class folders."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mmrank.datasets.image_header import IMAGE_SUFFIXES
from mmrank.errors import UserError
from mmrank.files import path_fault, read_text

#: What to do about a path that leads out of the folder of the images.
PATH_FIX = (
    "list paths within the folder of the images, without a leading '/' and "
    "'..'; set data_prefix to that folder"
)
_EXAMPLES = 3


class ListedImage(NamedTuple):
    """One image of a list, by its path in the folder of the images."""

    path: str
    class_name: str
    super_class: str  # '' where there is none
    place: str  # file:line; '' for a folder


class BadLine(NamedTuple):
    """A line that does not follow the format: its place, ``file:line``, and its text."""

    place: str
    text: str


def first_bad(lines: Sequence[BadLine]) -> str:
    """The first lines, indented, and how many more there are."""
    shown = [f'    {line.place}: {line.text}' for line in lines[:_EXAMPLES]]
    if len(lines) > _EXAMPLES:
        shown.append(f'    ... and {len(lines) - _EXAMPLES} more')
    return '\n'.join(shown)


class ImageList(NamedTuple):
    """What a list or a folder holds; ``line_format`` is for messages."""

    source: str
    line_format: str
    images: list[ListedImage]
    bad_lines: list[BadLine]
    #: Folders that would be classes if they held an image.
    empty_folders: Sequence[str] = ()

    def unusable_paths(self) -> list[BadLine]:
        """Paths that would lead out of the folder of the images."""
        return [
            BadLine(image.place, f'{image.path!r:.200} {fault}')
            for image in self.images
            if (fault := path_fault(image.path))
        ]

    def raise_if_bad(self) -> None:
        """Raise a ``UserError`` when a line or path is bad, or there is no image."""
        if self.bad_lines:
            raise UserError(
                f'{len(self.bad_lines)} lines of {self.source} are not of '
                f'the form "{self.line_format}":\n'
                + first_bad([BadLine(x.place, repr(x.text)) for x in self.bad_lines])
                + '\n  Fix: correct or remove these lines, or fetch the file again'
            )
        unusable = self.unusable_paths()
        if unusable:
            raise UserError(
                f'{len(unusable)} paths of {self.source} cannot be used, like '
                + ', '.join(f'{b.place}: {b.text}' for b in unusable[:3])
                + f'. Fix: {PATH_FIX}'
            )
        if not self.images:
            raise UserError(
                f'{self.source} lists no image. Fix: check data_root, and '
                'that the data set was unpacked completely'
            )


def read_lines(path: str | os.PathLike) -> list[str]:
    """Read the lines of a list of a data set."""
    fix = 'check data_root, and that the data set was unpacked completely'
    return read_text(path, 'list', fix).splitlines()


class ListFormat(NamedTuple):
    """The form of the lines of a list.

    ``parse`` returns path, class and super-class of a line's fields; None for a bad line.
    """

    text: str  # for messages; also the first line of the file, where has_header
    parse: Callable[[list[str]], tuple[str, str, str] | None]
    has_header: bool = False

    def read(self, path: str | os.PathLike) -> ImageList:
        """Read a list; bad lines are included."""
        images, bad_lines = [], []
        for number, line in enumerate(read_lines(path), 1):
            is_header = number == 1 and self.has_header and line.split() == self.text.split()
            if is_header or not line.strip():
                continue
            place = f'{path}:{number}'
            fields = line.split('\t') if '\t' in line else line.split()
            parsed = self.parse([field.strip() for field in fields])
            if parsed is None:
                bad_lines.append(BadLine(place, line[:80]))
            else:
                images.append(ListedImage(*parsed, place))
        return ImageList(str(path), self.text, images, bad_lines)


def _sop(fields: list[str]) -> tuple[str, str, str] | None:
    fits = len(fields) == 4 and all(x.isdigit() for x in fields[:3])
    return (fields[3], fields[1], fields[2]) if fits else None


def _vehicle_id(fields: list[str]) -> tuple[str, str, str] | None:
    fits = len(fields) == 2 and all(x.isdigit() for x in fields)
    return (f'{fields[0]}.jpg', fields[1], '') if fits else None


def _inaturalist(fields: list[str]) -> tuple[str, str, str] | None:
    parts = fields[0].split('/')
    if len(fields) > 2 or len(parts) < 3 or '' in parts[-3:]:
        return None
    name = f'{parts[-3]}/{parts[-2]}' if len(fields) == 1 else fields[1]
    return fields[0], name, parts[-3]


def _path_list(fields: list[str]) -> tuple[str, str, str] | None:
    if len(fields) == 2 and all(fields):
        return fields[0], fields[1], ''
    folder = os.path.dirname(fields[0])
    return (fields[0], folder, '') if len(fields) == 1 and folder else None


#: Lists of Stanford Online Products, like ``Ebay_train.txt``.
SOP_LIST = ListFormat('image_id class_id super_class_id path', _sop, has_header=True)
#: Lists of PKU VehicleID, like ``train_list.txt``: two numbers, the image without its suffix.
VEHICLE_ID_LIST = ListFormat('image vehicle', _vehicle_id)
#: Splits of iNaturalist-2018 as SmoothAP (Brown et al., ECCV 2020) has them. Class names contain
#: the super-class. A class after the path is taken instead of the folder's.
INATURALIST_LIST = ListFormat('.../super-class/class/image', _inaturalist)
#: Lines ``path class``, parted by a tab where one of them contains blanks, or ``path`` alone: its
#: folder is the class.
PATH_LIST = ListFormat('path class', _path_list)


def scan_class_folders(
    root: str | os.PathLike, depth: int = 1, within: Sequence[str] = ()
) -> ImageList:
    """Find the images of a tree whose folders are the classes, sorted by path.

    ``depth`` levels of folders name a class, 1 for ``class/image`` and 2 for
    ``super-class/class/image``; images may lie deeper. ``within`` names the folders of the first
    level to look into, empty: all. Folders whose name begins with a dot are passed over.
    """
    root = Path(root)
    if not os.path.isdir(root):
        raise UserError(
            f'folder {root!s:.300} does not exist. Fix: check data_root '
            'and data_prefix, or link the data set there'
        )
    there = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith('.'))
    missing = [name for name in within if name not in there]
    if missing:
        raise UserError(
            f'{root} has no folders {missing}, only {there[:20]}. Fix: '
            'correct the names, or unpack the missing part'
        )
    images = []
    classes = []
    for name in within or there:
        for folder, subfolders, files in os.walk(root / name):
            subfolders[:] = sorted(f for f in subfolders if not f.startswith('.'))
            parts = Path(folder).relative_to(root).parts
            if len(parts) < depth:
                continue
            class_name = '/'.join(parts[:depth])
            super_class = '/'.join(parts[: depth - 1])
            classes.append(class_name)
            images += [
                ListedImage('/'.join((*parts, file)), class_name, super_class, '')
                for file in sorted(files)
                if file.lower().endswith(IMAGE_SUFFIXES)
            ]
    full = {image.class_name for image in images}
    empty = [name for name in dict.fromkeys(classes) if name not in full]
    return ImageList(str(root), '/'.join(['folder'] * depth + ['image']), images, [], empty)
