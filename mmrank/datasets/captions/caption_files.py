"""Readers of files with images and captions: tables, COCO's JSON, Karpathy's splits."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from mmrank.datasets.checks.coco_reading import parse_json, read_coco_json
from mmrank.datasets.checks.data_report import shown
from mmrank.datasets.retrieval.image_lists import BadLine, first_bad
from mmrank.errors import UserError
from mmrank.files import path_fault, read_text


class CaptionedImage(NamedTuple):
    """One image, by its path in the folder of the images, and its captions, at least one."""

    path: str
    captions: tuple[str, ...]
    label: str | None = None


class CaptionList(NamedTuple):
    """What a file holds; ``entry_format`` says in messages what an entry should look like."""

    source: str
    entry_format: str
    images: list[CaptionedImage]
    bad_entries: list[BadLine]

    def raise_if_bad(self) -> None:
        """Raise a ``UserError`` when an entry could not be read or there is no image."""
        if self.bad_entries:
            raise UserError(
                f'{len(self.bad_entries)} entries of {self.source} are not '
                f'of the form {self.entry_format}:\n'
                + first_bad(self.bad_entries)
                + '\n  Fix: correct or remove them, or name the columns that the file has'
            )
        if not self.images:
            raise UserError(
                f'{self.source} has no image with a caption. Fix: check '
                'ann_file and, where there is one, split'
            )


class _Gathering:
    """Collects captions by image, in the order of first mention, and bad entries."""

    def __init__(self) -> None:
        self._images: dict[str, tuple[list[str], str | None]] = {}
        self._bad: list[BadLine] = []

    def add(self, path: str, captions: list[str], label: str | None = None) -> None:
        self._images.setdefault(path, ([], label))[0].extend(captions)

    def refuse(self, place: str, entry: object) -> None:
        self._bad.append(BadLine(place, shown(entry)))

    def found(self, source: str | os.PathLike, entry_format: str) -> CaptionList:
        images = [
            CaptionedImage(path, tuple(captions), label)
            for path, (captions, label) in self._images.items()
            if captions
        ]
        return CaptionList(str(source), entry_format, images, self._bad)


def clean_captions(value) -> list[str] | None:
    """Captions of an entry, without blanks around and line breaks within.

    ``value`` is a string or a list of them. None where there is none, or one is blank.
    """
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values:
        return None
    if not all(isinstance(x, str) and x.strip() for x in values):
        return None
    return [' '.join(x.split()) for x in values]


def read_caption_table(
    path: str | os.PathLike,
    image_key: str = 'image',
    caption_key: str = 'caption',
    label_key: str | None = None,
) -> CaptionList:
    """Read captions, one image and its caption or captions an entry; bad entries are included.

    Three forms, by the name of the file: ``.jsonl``, a JSON object a line; ``.json``, a list of
    objects; any other, lines of columns parted by tabs whose names the first line tells. An image
    that is there several times has several captions. The keys name the path of the image, its
    caption, in JSON also a list of them, and the name of its class (None: there is none).
    """
    path = Path(path)
    keys = [image_key, caption_key, *([label_key] if label_key else [])]
    if path.suffix in ('.jsonl', '.ndjson'):
        entries, form = _json_lines(path), f'a JSON object with {keys}'
    elif path.suffix == '.json':
        entries, form = _json_list(path), f'a JSON object with {keys}'
    else:
        entries, form = _columns(path, keys), ' <tab> '.join(keys)
    gathering = _Gathering()
    for place, entry, text in entries:
        found = entry if isinstance(entry, dict) else {}
        image = found.get(image_key)
        captions = clean_captions(found.get(caption_key))
        label = found.get(label_key) if label_key else None
        image = image.strip() if isinstance(image, str) else None
        fits = captions and not path_fault(image)
        if not fits or (label_key and not isinstance(label, str)):
            gathering.refuse(place, text)
        else:
            gathering.add(image, captions, label)
    return gathering.found(path, form)


def _read_text(path: Path) -> str:
    fix = 'check data_root and ann_file; the file must be UTF-8 text, unpacked'
    return read_text(path, 'caption file', fix)


def _json_lines(path: Path) -> Iterator[tuple[str, object, object]]:
    for number, line in enumerate(_read_text(path).split('\n'), 1):
        if line.strip():
            try:
                entry = parse_json(line)
            except ValueError:
                entry = None
            yield f'{path}:{number}', entry, line


def _json_list(path: Path) -> Iterator[tuple[str, object, object]]:
    text = _read_text(path)
    try:
        entries = parse_json(text)
    except ValueError as error:
        raise UserError(
            f'caption file {path} is not valid JSON: {error}. Fix: fetch it again if it was cut '
            'off; a file with one object per line must have the suffix .jsonl'
        ) from error
    if not isinstance(entries, list):
        raise UserError(
            f'caption file {path} holds a JSON {type(entries).__name__}, not '
            "a list of images. Fix: for COCO's captions use type='mmrank."
            "COCOCaptions', for Karpathy's splits 'mmrank.KarpathyCaptions'"
        )
    for number, entry in enumerate(entries):
        yield f'{path}, entry {number}', entry, entry


def _columns(path: Path, keys: list[str]) -> Iterator[tuple[str, object, object]]:
    lines = _read_text(path).split('\n')
    names = [x.strip() for x in lines[0].split('\t')]
    missing = [x for x in keys if x not in names]
    if missing:
        raise UserError(
            f'{path} has no column {missing[0]!r}; its header is {shown(names)}. Fix: set '
            "image_key and caption_key, or add a header line. (Conceptual Captions' own file holds "
            'URLs: download the images and list the files)'
        )
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            fields = line.rstrip('\r').split('\t')
            fits = len(fields) == len(names)
            entry = dict(zip(names, fields)) if fits else None
            yield f'{path}:{number}', entry, line


def read_coco_captions(path: str | os.PathLike) -> CaptionList:
    """Read COCO's ``captions_*.json``; images without a caption are left out.

    It has ``images`` (``id``, ``file_name``) and ``annotations`` (``image_id``, ``caption``).
    """
    document = read_coco_json(path)
    images, annotations = (_list_of(path, document, key) for key in ('images', 'annotations'))
    gathering, files = _Gathering(), {}
    for number, image in enumerate(images):
        try:
            files[image['id']] = image['file_name']
            gathering.add(image['file_name'], [])
        except (KeyError, TypeError):
            gathering.refuse(f'images[{number}]', image)
    for number, entry in enumerate(annotations):
        try:
            file = files[entry['image_id']]
            captions = clean_captions(entry['caption'])
        except (KeyError, TypeError):
            file = captions = None
        if path_fault(file) or captions is None:
            gathering.refuse(f'annotations[{number}]', entry)
        else:
            gathering.add(file, captions)
    form = 'id, file_name (images); image_id of one of them, caption'
    return gathering.found(path, form)


def read_karpathy(path: str | os.PathLike, splits: Collection[str]) -> CaptionList:
    """Read splits of Karpathy and Fei-Fei (CVPR 2015).

    ``path`` is ``dataset_flickr30k.json`` or ``dataset_coco.json``. With COCO the path of an image
    begins with the folder ``train2014/`` or ``val2014/``.
    """
    images = _list_of(path, read_coco_json(path), 'images')
    gathering, there = _Gathering(), set()
    for number, image in enumerate(images):
        try:
            there.add(image['split'])
            if image['split'] not in splits:
                continue
            folder, file = image.get('filepath'), image['filename']
            file = f'{folder}/{file}' if folder and file else file
            captions = clean_captions([x['raw'] for x in image['sentences']])
        except (KeyError, TypeError, AttributeError):
            file = captions = None
        if captions is None or path_fault(file):
            gathering.refuse(f'images[{number}]', image)
        else:
            gathering.add(file, captions)
    form = "split, filename, sentences: [{'raw': ...}]"
    found, missing = gathering.found(path, form), sorted(set(splits) - there)
    if missing and not found.bad_entries:
        raise UserError(
            f'{path} has no split {missing[0]!r}, only {sorted(map(shown, there))[:10]}. Fix: '
            'correct split'
        )
    return found


def _list_of(path, document: dict, key: str) -> list:
    value = document.get(key)
    if not isinstance(value, list):
        raise UserError(
            f'caption file {path} has no list {key!r}, only {sorted(map(shown, document))[:6]}. '
            'Fix: set ann_file to the file with the captions'
        )
    return value
