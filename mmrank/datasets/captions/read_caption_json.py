"""Readers of COCO's captions and of Karpathy's splits."""

import os
from collections.abc import Collection

from mmrank.datasets.captions.caption_list import CaptionGathering, CaptionList, clean_captions
from mmrank.datasets.checks.coco_reading import read_coco_json
from mmrank.datasets.checks.data_report import shown
from mmrank.datasets.retrieval.image_lists import BadLine
from mmrank.errors import UserError
from mmrank.files import path_fault


def read_coco_captions(path: str | os.PathLike) -> CaptionList:
    """Read COCO's ``captions_*.json``.

    Args:
        path: JSON file with ``images`` (``id``, ``file_name``) and ``annotations`` (``image_id``,
            ``caption``).

    Returns:
        The images that have a caption, in the order of ``images``; bad
        entries included.

    Raises:
        UserError: If the file cannot be read.
    """
    document = read_coco_json(path)
    images, annotations = (_list_of(path, document, key) for key in ('images', 'annotations'))
    gathering, bad, files = CaptionGathering(), [], {}
    for number, image in enumerate(images):
        try:
            files[image['id']] = image['file_name']
            gathering.add(image['file_name'], [])
        except (KeyError, TypeError):
            bad.append(_bad(f'images[{number}]', image))
    for number, entry in enumerate(annotations):
        try:
            file = files[entry['image_id']]
            captions = clean_captions(entry['caption'])
        except (KeyError, TypeError):
            file = captions = None
        if path_fault(file) or captions is None:
            bad.append(_bad(f'annotations[{number}]', entry))
        else:
            gathering.add(file, captions)
    form = 'id, file_name (images); image_id of one of them, caption'
    return CaptionList(str(path), form, gathering.images(), bad)


def read_karpathy(path: str | os.PathLike, splits: Collection[str]) -> CaptionList:
    """Read a split of Karpathy and Fei-Fei (CVPR 2015).

    Args:
        path: ``dataset_flickr30k.json`` or ``dataset_coco.json``.
        splits: Those to take: ``train``, ``restval``, ``val``, ``test``.

    Returns:
        The images; bad entries included. With COCO a path begins with the folder ``train2014/`` or
        ``val2014/``.

    Raises:
        UserError: If the file cannot be read or lacks a split.
    """
    images = _list_of(path, read_coco_json(path), 'images')
    gathering, bad, there = CaptionGathering(), [], set()
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
            bad.append(_bad(f'images[{number}]', image))
        else:
            gathering.add(file, captions)
    missing = sorted(set(splits) - there)
    if missing and not bad:
        raise UserError(
            f'{path} has no split {missing[0]!r}, only {sorted(map(shown, there))[:10]}. Fix: '
            'correct split'
        )
    form = "split, filename, sentences: [{'raw': ...}]"
    return CaptionList(str(path), form, gathering.images(), bad)


def _list_of(path, document: dict, key: str) -> list:
    value = document.get(key)
    if not isinstance(value, list):
        raise UserError(
            f'caption file {path} has no list {key!r}, only {sorted(map(shown, document))[:6]}. '
            'Fix: set ann_file to the file with the captions'
        )
    return value


def _bad(place: str, entry) -> BadLine:
    return BadLine(place, shown(entry))
