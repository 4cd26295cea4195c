"""Reads the published tables of ChestX-ray14."""

import csv
import os
from pathlib import Path
from typing import NamedTuple

from mmrank.errors import UserError
from mmrank.files import read_text

CLASSES = (
    'Atelectasis', 'Cardiomegaly', 'Effusion', 'Infiltration', 'Mass', 'Nodule', 'Pneumonia',
    'Pneumothorax', 'Consolidation', 'Edema', 'Emphysema', 'Fibrosis', 'Pleural_Thickening',
    'Hernia',
)  # fmt: skip
NO_FINDING = 'No Finding'
COLUMNS = ('Image Index', 'Finding Labels', 'Patient ID')
_EXAMPLES = 5


class Entry(NamedTuple):
    """One X-ray."""

    findings: tuple[int, ...]  # indices into CLASSES, rising
    patient: str


def read_table(path: str | os.PathLike, fix: str) -> tuple[list[str], list[tuple[int, dict]]]:
    """Column names of a CSV file, and number and cells of each other line that is not empty.

    A cell that a line lacks is empty; blanks around cells do not count.
    """
    try:
        with Path(path).open(encoding='utf-8-sig', newline='') as file:
            reader = csv.DictReader(file, restval='')
            names = reader.fieldnames or ()
            rows = [(reader.line_num, {x.strip(): row[x].strip() for x in names}) for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(
            f'table {path!s:.300} cannot be read: {error}. Fix: check data_root and {fix}'
        ) from error
    return [x.strip() for x in names], [(n, row) for n, row in rows if any(row.values())]


def read_entries(path: str | os.PathLike) -> dict[str, Entry]:
    """Read the X-rays of ``Data_Entry_2017.csv`` by file name, in the order of the file.

    It has at least the columns ``Image Index``, ``Finding Labels`` (names parted by ``|``, or ``No
    Finding``) and ``Patient ID``.
    """
    header, rows = read_table(path, 'ann_file, or fetch Data_Entry_2017.csv again')
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise UserError(
            f'{path} has no column {", ".join(map(repr, missing))}; its first '
            f'line is {",".join(header)[:200]!r}. Fix: download '
            'Data_Entry_2017.csv again, or rename the columns'
        )
    entries: dict[str, Entry] = {}
    for number, row in rows:
        image, labels, patient = (row[name] for name in COLUMNS)
        if image in entries:
            raise UserError(
                f'{path}:{number} lists {image:.200} a second time. Fix: remove one of the lines'
            )
        entries[image] = Entry(_findings(labels, f'{path}:{number}'), patient)
    if not entries:
        raise UserError(f'{path} lists no image. Fix: fetch Data_Entry_2017.csv again')
    return entries


def _findings(labels: str, place: str) -> tuple[int, ...]:
    names = [name.strip() for name in labels.split('|')]
    if names == [NO_FINDING]:
        return ()
    unknown = [name for name in names if name not in CLASSES]
    if unknown or len(set(names)) < len(names):
        raise UserError(
            f"{place}: 'Finding Labels' is {labels!r:.200}; known are "
            f'{", ".join(CLASSES)}, each at most once, or {NO_FINDING!r} '
            'alone. Fix: correct this line'
        )
    return tuple(sorted(CLASSES.index(name) for name in names))


def read_image_list(path: str | os.PathLike, entries: dict[str, Entry]) -> list[str]:
    """Read the file names of ``train_val_list.txt`` or ``test_list.txt``."""
    fix = "check data_root, or split_by='patients' where there is no list"
    names = read_text(path, 'list', fix).split()
    unknown = [name for name in names if name not in entries]
    if unknown or not names or len(set(names)) < len(names):
        what = 'names no image'
        if unknown:
            what = (
                f'names {len(unknown)} images that the table of labels does '
                f'not have, like {_listed(unknown)}'
            )
        elif names:
            what = 'names an image twice'
        raise UserError(f'{path} {what}. Fix: fetch list and table again, of one version')
    return names


def find_images(folder: str | os.PathLike, names: list[str]) -> list[str]:
    """Find image files in a folder, its ``images/``, or ``images_001/images/`` and so on."""
    folder = Path(folder)
    places = [folder, folder / 'images', *sorted(folder.glob('images_*/images'))]
    found = {
        name: str(place / name)
        for place in reversed(places)
        if place.is_dir()
        for name in os.listdir(place)
    }
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(
            f'{len(missing)} of {len(names)} images are missing, like {_listed(missing)}; looked '
            f'into {folder}, its images/ and its images_*/images/. Fix: check data_root and '
            'data_prefix, and unpack all of images_001.tar.gz to images_012.tar.gz'
        )
    return [found[name] for name in names]


def _listed(names: list[str]) -> str:
    return ', '.join(name[:200] for name in names[:_EXAMPLES])
