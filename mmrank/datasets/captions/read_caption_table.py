"""Readers of tables with an image and a caption in each entry."""

import os
from collections.abc import Iterator
from pathlib import Path

from mmrank.datasets.captions.caption_list import CaptionGathering, CaptionList, clean_captions
from mmrank.datasets.checks.coco_reading import parse_json
from mmrank.datasets.checks.data_report import shown
from mmrank.datasets.retrieval.image_lists import BadLine
from mmrank.errors import UserError
from mmrank.files import path_fault

#: Suffixes of files with a JSON object a line.
_LINES = ('.jsonl', '.ndjson')


def read_caption_table(
    path: str | os.PathLike,
    image_key: str = 'image',
    caption_key: str = 'caption',
    label_key: str | None = None,
) -> CaptionList:
    """Read captions, one image and its caption or captions an entry.

    Three forms, by the name of the file: ``.jsonl``, a JSON object a line; ``.json``, a list of
    objects; any other, lines of columns parted by tabs whose names the first line tells. An image
    that is there several times
    has several captions.

    Args:
        path: The file.
        image_key: Key or column with the path of the image.
        caption_key: That with the caption; in JSON also a list of them.
        label_key: That with the name of its class; None: there is none.

    Returns:
        The images; bad entries included.

    Raises:
        UserError: If the file cannot be read, or lacks a column.
    """
    path = Path(path)
    keys = [image_key, caption_key, *([label_key] if label_key else [])]
    if path.suffix in _LINES:
        entries, form = _json_lines(path), f'a JSON object with {keys}'
    elif path.suffix == '.json':
        entries, form = _json_list(path), f'a JSON object with {keys}'
    else:
        entries, form = _columns(path, keys), ' <tab> '.join(keys)
    gathering, bad = CaptionGathering(), []
    for place, entry, text in entries:
        found = entry if isinstance(entry, dict) else {}
        image = found.get(image_key)
        captions = clean_captions(found.get(caption_key))
        label = found.get(label_key) if label_key else None
        image = image.strip() if isinstance(image, str) else None
        fits = captions and not path_fault(image)
        if not fits or (label_key and not isinstance(label, str)):
            bad.append(BadLine(place, shown(text)))
            continue
        gathering.add(image, captions, label)
    return CaptionList(str(path), form, gathering.images(), bad)


def read_text(path: Path) -> str:
    """Read a file as UTF-8.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        return path.read_text(encoding='utf-8-sig')
    except (OSError, ValueError) as error:
        raise UserError(
            f'caption file {path!s:.300} cannot be read: {error}. Fix: check data_root and '
            'ann_file; the file must be UTF-8 text, unpacked'
        ) from error


def _json_lines(path: Path) -> Iterator[tuple[str, object, object]]:
    for number, line in enumerate(read_text(path).split('\n'), 1):
        if line.strip():
            try:
                entry = parse_json(line)
            except ValueError:
                entry = None
            yield f'{path}:{number}', entry, line


def _json_list(path: Path) -> Iterator[tuple[str, object, object]]:
    text = read_text(path)
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
    lines = read_text(path).split('\n')
    names = [x.strip() for x in lines[0].split('\t')]
    missing = [x for x in keys if x not in names]
    if missing:
        raise UserError(
            f'{path} has no column {missing[0]!r}; its header is '
            f'{shown(names)}. '
            'Fix: set image_key and caption_key, or add a header line. '
            "(Conceptual Captions' own file holds URLs: download the images "
            'and list the files)'
        )
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            fields = line.rstrip('\r').split('\t')
            fits = len(fields) == len(names)
            entry = dict(zip(names, fields)) if fits else None
            yield f'{path}:{number}', entry, line
