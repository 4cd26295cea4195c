"""Folders of labels of Ultralytics and VOC, as COCO documents of their splits."""

import re
from pathlib import Path

import yaml

from mmrank.annotations.documents import make_document
from mmrank.annotations.labels.classes import read_classes
from mmrank.annotations.labels.pictures import Faults, Pictures
from mmrank.annotations.labels.readers import READERS
from mmrank.annotations.text_tables import read_lines
from mmrank.errors import UserError

#: Words by which a file, or its folder, names its split.
WORDS = {
    'train': {'train', 'training'},
    'val': {'val', 'valid', 'validation'},
    'test': {'test', 'testing'},
}


def read_labels(folder: Path, form: str) -> dict[str, dict]:
    """COCO documents of a folder by split, as its lists or else the names of folders in it say.

    ``form`` is ``'yolo'``, with data.yaml, or ``'voc'``. Without any split all is for training.
    """
    # VOC also has masks, of the same names.
    images = [*folder.rglob('JPEGImages')] if form == 'voc' else []
    pictures = Pictures(images[0] if len(images) == 1 else folder)
    faults = Faults()
    classes: list[str] = []
    lists = {name: [*folder.rglob(f'ImageSets/Main/{name}.txt')] for name in WORDS}
    if form == 'yolo':
        classes, lists = _read_yaml(folder)
    splits = {}
    for name in WORDS:
        named = {x for x in pictures.names if split_of(Path(x).parent) == name}
        # Of folders and lists, as far as these are there.
        names: set[str] = set()
        for place in lists[name]:
            names.update(x for x in pictures.names if place in (pictures.folder / x).parents)
            for line in filter(str.strip, read_lines(place) if place.is_file() else ()):
                names.update(x.name for x in faults.of(pictures.find, line.strip(), str(place)))
        splits[name] = names or named
    if not any(splits.values()):
        splits['train'] = {*pictures.names}
    pictures.wanted = dict.fromkeys(sorted(set().union(*splits.values())))
    reader = READERS['yolo-seg' if form == 'yolo' else form]  # which also reads boxes
    found = [*reader(folder, pictures, classes, faults)]
    classes = classes or sorted({x.name for _, labels in found for x in labels})
    parts = {name: [x for x in found if x[0].name in names] for name, names in splits.items()}
    documents = {name: make_document(part, classes, faults) for name, part in parts.items() if part}
    faults.raise_if_any()
    return documents


def split_of(path: Path) -> str | None:
    """The split that a file or folder names, or else the folder that it is in."""
    for text in (path.stem, path.parent.name):
        words = {*re.split('[^a-z]+', text.lower())}
        found = [name for name, own in WORDS.items() if words & own]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _read_yaml(folder: Path) -> tuple[list[str], dict[str, list[Path]]]:
    """Classes, and folders or lists of images by split, of the data.yaml of Ultralytics."""
    files = [*folder.glob('data.yaml')] or [*folder.glob('*.y*ml')]
    if len(files) != 1:
        what = f'--yolo {folder} has {len(files)} .yaml files'
        raise UserError(what, "data.yaml there with 'names' of the classes, 'train' and 'val'")
    classes = read_classes(str(files[0]))
    entries = yaml.safe_load(files[0].read_text('utf-8-sig'))
    lists = {}
    for name, words in WORDS.items():
        entry = next((entries[x] for x in sorted(words) if entries.get(x)), [])
        places = entry if isinstance(entry, list) else [entry]
        lists[name] = [path for x in places for path in _ends(folder, str(x))]
    return classes, lists


def _ends(folder: Path, text: str) -> list[Path]:
    """The longest end of a path, written for another machine or folder, that is in the folder."""
    parts = [x for x in text.replace('\\', '/').split('/') if x not in ('', '.', '..')]
    paths = [folder.joinpath(*parts[start:]) for start in range(max(len(parts), 1))]
    return [path for path in paths if path.exists()][:1]
