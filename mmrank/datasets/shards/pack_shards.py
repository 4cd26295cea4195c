"""Writes images and captions as shards in WebDataset's form."""

import json
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path

import numpy as np

from mmrank.datasets.captions.caption_files import CaptionedImage, CaptionList, clean_captions
from mmrank.datasets.image_header import image_size
from mmrank.datasets.retrieval.image_lists import BadLine
from mmrank.datasets.shards.shard_index import INDEX_FOLDER, ShardIndex
from mmrank.datasets.shards.tar_shard import IMAGE_MEMBERS, index_tars
from mmrank.errors import UserError
from mmrank.files import whole_folder
from mmrank.required_package import required_package

#: Field of the member ``json`` where images have several captions.
CAPTION_FIELD = 'caption'


def read_caption_folder(folder: str | Path) -> CaptionList:
    """Find images with their captions beside them: ``x.jpg`` and ``x.txt``.

    All folders in it are searched. A line of a text file is a caption. The images are ordered by
    their paths; bad entries are included.
    """
    folder = Path(folder)
    images, bad = [], []
    for path in sorted(folder.rglob('*')):
        if path.suffix[1:].lower() not in IMAGE_MEMBERS:
            continue
        name = path.relative_to(folder).as_posix()
        text = path.with_suffix('.txt')
        try:
            lines = text.read_text(encoding='utf-8-sig').splitlines()
        except FileNotFoundError:
            bad.append(BadLine(name, f'no file {text.name}'))
            continue
        except ValueError:
            bad.append(BadLine(name, f'{text.name} is not UTF-8 text'))
            continue
        captions = clean_captions([line for line in lines if line.strip()])
        if captions is None:
            bad.append(BadLine(name, f'no caption in {text.name}'))
        else:
            images.append(CaptionedImage(name, tuple(captions)))
    form = 'NAME.jpg with its captions in NAME.txt, one a line'
    return CaptionList(str(folder), form, images, bad)


def pack_shards(
    found: CaptionList,
    folder: str | Path,
    out: str | Path,
    samples: int = 10_000,
    seed: int | None = None,
    track: Callable[[Iterable], Iterable] = iter,
) -> ShardIndex:
    """Write shards and their index, whole or not at all.

    The sample of an image has the member ``txt`` where each image has one caption, else ``json``
    with the list ``caption``.

    Args:
        found: The images and captions.
        folder: Of the images.
        out: Folder to write to; it must not be there.
        samples: In a shard.
        seed: Shuffles the images first; None: they stay in their order.
        track: Put around the images, to show how far it is.

    Returns:
        The index.

    Raises:
        PackageError: If ``webdataset`` is absent or of a wrong version.
        UserError: If an image is absent or no image, or ``out`` is there.
    """
    with required_package('webdataset', 'packing of shards', "pip install 'mmrank[shards]'"):
        import webdataset
    found.raise_if_bad()
    folder, out = Path(folder), Path(out)
    if out.exists():
        raise UserError(
            f'{out} exists, and shards of two data sets must not mix. Fix: '
            'name a folder that does not exist, or remove it'
        )
    order = np.arange(len(found.images))
    if seed is not None:
        keys = np.random.Generator(np.random.PCG64(seed)).random(len(order))
        order = np.argsort(keys, kind='stable')
    several = any(len(image.captions) > 1 for image in found.images)
    with whole_folder(out) as temp:
        writer = webdataset.ShardWriter(
            str(temp / '%06d.tar'), maxcount=samples, verbose=0, encoder=False, mtime=0
        )
        with writer:
            for number, place in enumerate(track(order)):
                image = found.images[place]
                member, data = _image(folder / image.path)
                sample = {'__key__': f'{number:09d}', member: data}
                if several:
                    text = json.dumps({CAPTION_FIELD: list(image.captions)})
                    sample['json'] = text.encode()
                else:
                    sample['txt'] = image.captions[0].encode()
                writer.write(sample)
        caption = f'json:{CAPTION_FIELD}' if several else 'txt'
        index = index_tars(temp, caption)
    index.folder = out / INDEX_FOLDER
    return index


def _image(path: Path) -> tuple[str, bytes]:
    member = path.suffix[1:].lower()
    if member not in IMAGE_MEMBERS:
        raise UserError(
            f'image {path}: {path.suffix!r} is no ending of an image. Fix: '
            f'name it by its form, one of {", ".join(IMAGE_MEMBERS)}'
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f'image {path} cannot be read: {error.strerror}. Fix: name the '
            'folder that the paths start from, or remove its line'
        ) from error
    try:
        image_size(BytesIO(data))
    except ValueError as error:
        raise UserError(
            f'image {path} cannot be used: {error}. Fix: replace it, or remove its line'
        ) from error
    return member, data
