"""Readers of files with images and captions: tables, COCO's JSON, Karpathy's splits."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mmrank.annotations.findings import shown
from mmrank.annotations.read import parse_json, read_coco_json
from mmrank.annotations.text_tables import read_lines, read_table
from mmrank.errors import UserError
from mmrank.files import path_fault


class _Captioned(NamedTuple):
    """One image, by its path in the folder of the images, and its captions, at least one."""

    path: str
    captions: list[str]
    label: str | None = None


def _gather(
    source: str | Path, form: str, entries: Iterable[tuple[str, object, object, object, object]]
) -> list[_Captioned]:
    """Captions by image, in the order of first mention.

    An entry is its place and content, for messages, then path, caption or list of captions, and
    class, None where there is none. Blanks around captions and line breaks within are left out.
    """
    images: dict[str, _Captioned] = {}
    for place, entry, path, captions, label in entries:
        texts = [captions] if isinstance(captions, str) else captions
        is_text = isinstance(texts, list) and all(isinstance(x, str) and x.strip() for x in texts)
        if path_fault(path) or not (is_text and texts):
            what = f'{place} is {shown(entry)}, not {form}'
            raise UserError(what, 'correct or remove it, or name the columns that the file has')
        image = images.setdefault(path, _Captioned(path, [], label))
        if label != image.label:
            raise UserError(
                f'{place} gives {path!r:.200} the class {shown(label)}, an earlier one '
                f'{shown(image.label)}. Fix: one class for an image'
            )
        image.captions.extend(' '.join(x.split()) for x in texts)
    if not images:
        what = f'{source} has no image with a caption'
        raise UserError(what, 'check ann_file and, where there is one, split')
    return list(images.values())


def read_caption_table(
    path: str | Path,
    image_key: str = 'image',
    caption_key: str = 'caption',
    label_key: str | None = None,
) -> list[_Captioned]:
    """Read captions, one image and its caption or captions an entry.

    Three forms, by the name of the file: ``.jsonl``, a JSON object a line; ``.json``, a list of
    objects; any other, lines of columns parted by tabs whose names the first line tells. An image
    that is there several times has several captions. The keys name the path of the image, its
    caption, in JSON also a list of them, and the name of its class (None: there is none).
    """
    keys = [image_key, caption_key, *([label_key] if label_key else [])]
    suffix = Path(path).suffix
    if suffix in ('.jsonl', '.ndjson'):
        lines = enumerate(read_lines(path), 1)
        entries = (
            (f'{path}:{n}', _parsed(line, f'{path}:{n}')) for n, line in lines if line.strip()
        )
    elif suffix == '.json':
        content = _parsed(''.join(read_lines(path)), f'caption file {path}')
        if not isinstance(content, list):
            raise UserError(
                f'caption file {path} holds a JSON {type(content).__name__}, not a list of images. '
                "Fix: for COCO's captions use type='mmrank.COCOCaptions', for Karpathy's splits "
                "'mmrank.KarpathyCaptions'"
            )
        entries = ((f'{path}, entry {n}', entry) for n, entry in enumerate(content))
    else:
        _, entries = read_table(path, keys, '\t')

    def fields() -> Iterator[tuple]:
        for place, entry in entries:
            found = entry if isinstance(entry, dict) else {}
            label = found.get(label_key) if label_key else None
            # An entry whose class is not a text is refused.
            image = found.get(image_key) if isinstance(label, str) or not label_key else None
            yield place, entry, image, found.get(caption_key), label

    return _gather(path, f'an entry with text as {keys}', fields())


def _parsed(text: str, place: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise UserError(
            f'{place} is not valid JSON: {error}. Fix: fetch the file again if it was cut off; one '
            'with an object a line must have the suffix .jsonl'
        ) from error


def read_coco_captions(path: str | Path) -> list[_Captioned]:
    """Read COCO's ``captions_*.json``; images without a caption are left out.

    It has ``images`` (``id``, ``file_name``) and ``annotations`` (``image_id``, ``caption``).
    """
    document = read_coco_json(path)
    images, annotations = (_list_of(path, document, key) for key in ('images', 'annotations'))
    captions: dict[object, list] = {}
    place = str(path)
    entry = document
    try:
        for number, entry in enumerate(images):
            place = f'{path}, images[{number}]'
            if entry['id'] in captions:
                raise KeyError(entry['id'])
            captions[entry['id']] = []
        for number, entry in enumerate(annotations):
            place = f'{path}, annotations[{number}]'
            captions[entry['image_id']].append(entry['caption'])
    except (KeyError, TypeError):
        entries = [(place, entry, None, None, None)]
    else:
        entries = (
            (f'{path}, image id {shown(x["id"])}', x, x.get('file_name'), captions[x['id']], None)
            for x in images
            if captions[x['id']]
        )
    form = 'id, each once, and file_name (images); image_id of one of them, caption (annotations)'
    return _gather(path, form, entries)


def read_karpathy(path: str | Path, splits: Collection[str]) -> list[_Captioned]:
    """Read splits of Karpathy and Fei-Fei (CVPR 2015).

    ``path`` is ``dataset_flickr30k.json`` or ``dataset_coco.json``. With COCO the path of an image
    begins with the folder ``train2014/`` or ``val2014/``.
    """
    images = _list_of(path, read_coco_json(path), 'images')
    there: set[str] = set()

    def fields() -> Iterator[tuple]:
        for number, image in enumerate(images):
            file = captions = None
            try:
                there.add(image['split'])
                if image['split'] not in splits:
                    continue
                folder = image.get('filepath')
                file = f'{folder}/{image["filename"]}' if folder else image['filename']
                captions = [x['raw'] for x in image['sentences']]
            except (KeyError, TypeError, AttributeError):
                file = None
            yield f'{path}, images[{number}]', image, file, captions, None

    entries = list(fields())
    missing = sorted(set(splits) - there)
    if missing:
        what = f'{path} has no split {missing[0]!r}, only {sorted(map(shown, there))[:10]}'
        raise UserError(what, 'correct split')
    return _gather(path, "split, filename, sentences: [{'raw': ...}]", entries)


def _list_of(path: str | Path, document: dict, key: str) -> list:
    value = document.get(key)
    if not isinstance(value, list):
        what = f'caption file {path} has no list {key!r}, only {sorted(map(shown, document))[:6]}'
        raise UserError(what, 'set ann_file to the file with the captions')
    return value
