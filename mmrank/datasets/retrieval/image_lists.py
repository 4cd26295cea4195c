"""Readers of the published lists of retrieval images, and of class folders."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mmrank.annotations.images import IMAGE_SUFFIXES
from mmrank.annotations.text_tables import read_rows
from mmrank.errors import UserError
from mmrank.files import path_fault


class _ListedImage(NamedTuple):
    """One image of a list, by its path in the folder of the images."""

    path: str
    class_name: str
    super_class: str  # '' where there is none


class ImageList(NamedTuple):
    """What a list or a folder holds."""

    source: str
    images: list[_ListedImage]
    faults: Sequence[str] = ()  # lines that cannot be used: file:line, and what is wrong
    empty_folders: Sequence[str] = ()  # that would be classes if they held an image

    def raise_if_bad(self) -> None:
        """Raise a ``UserError`` when a line or path is bad, or there is no image."""
        if self.faults:
            raise UserError(
                f'{len(self.faults)} lines of {self.source} cannot be used, like '
                f'{"; ".join(self.faults[:3])}. Fix: correct or remove them; list paths within the '
                "folder of the images, without a leading '/' and '..', and set data_prefix to it"
            )
        if not self.images:
            what = f'{self.source} lists no image'
            raise UserError(what, 'check data_root, and that the data set was unpacked completely')


class _ListFormat(NamedTuple):
    """The form of the lines of a list.

    ``parse`` returns path, class and super-class of a line's fields; None for a bad line.
    """

    text: str  # for messages; also the first line of the file, if it has a header
    parse: Callable[[list[str]], tuple[str, str, str] | None]

    def read(self, path: str | os.PathLike) -> ImageList:
        """Read a list of fields parted by a tab, or, in a line without one, by blanks."""
        images = []
        faults = []
        for place, fields in read_rows(path, '\t'):
            if len(fields) == 1:
                fields = fields[0].split()
            parsed = self.parse(fields)
            if parsed is None:
                if fields != self.text.split():
                    faults.append(f'{place}: {" ".join(fields)!r:.80} is not "{self.text}"')
            elif fault := path_fault(parsed[0]):
                faults.append(f'{place}: {parsed[0]!r:.200} {fault}')
            else:
                images.append(_ListedImage(*parsed))
        return ImageList(str(path), images, faults)


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
SOP_LIST = _ListFormat('image_id class_id super_class_id path', _sop)
#: Lists of PKU VehicleID, like ``train_list.txt``: two numbers, the image without its suffix.
VEHICLE_ID_LIST = _ListFormat('image vehicle', _vehicle_id)
#: Splits of iNaturalist-2018 as SmoothAP (Brown et al., ECCV 2020) has them. Class names contain
#: the super-class. A class after the path is taken instead of the folder's.
INATURALIST_LIST = _ListFormat('.../super-class/class/image', _inaturalist)
#: Lines ``path class``, parted by a tab where one of them contains blanks, or ``path`` alone: its
#: folder is the class.
PATH_LIST = _ListFormat('path class', _path_list)


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
        what = f'folder {root!s:.300} does not exist'
        raise UserError(what, 'check data_root and data_prefix, or link the data set there')
    there = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith('.'))
    missing = [name for name in within if name not in there]
    if missing:
        what = f'{root} has no folders {missing}, only {there[:20]}'
        raise UserError(what, 'correct the names, or unpack the missing part')
    images = []
    classes: dict[str, bool] = {}
    for name in within or there:
        for folder, subfolders, files in os.walk(root / name):
            subfolders[:] = sorted(f for f in subfolders if not f.startswith('.'))
            parts = Path(folder).relative_to(root).parts
            if len(parts) < depth:
                continue
            class_name = '/'.join(parts[:depth])
            super_class = '/'.join(parts[: depth - 1])
            found = [file for file in sorted(files) if file.lower().endswith(IMAGE_SUFFIXES)]
            images += [_ListedImage('/'.join((*parts, x)), class_name, super_class) for x in found]
            classes[class_name] = classes.get(class_name, False) or bool(found)
    empty = [name for name, is_full in classes.items() if not is_full]
    return ImageList(str(root), images, empty_folders=empty)
