r"""Pack images with captions into shards, and number the samples of shards.

    python tools/dataset_converters/image_text_shards.py pack \
        data/cc3m/train.tsv data/cc3m_shards --images data/cc3m \
        --image-key filepath --caption-key title --seed 0
    python tools/dataset_converters/image_text_shards.py index data/laion
    python tools/dataset_converters/image_text_shards.py stream \
        data/cc12m_index --path webdataset --split train --image jpg --caption txt \
        --data-files 'https://host/cc12m-{0000..2175}.tar' --key __key__

`pack` writes and numbers tar files from a table (TSV, JSONL, JSON) or a folder with NAME.jpg beside
NAME.txt; `index` numbers shards for mmrank.ShardedCaptions; `stream` numbers the ones that Hugging
Face's `datasets` streams, for mmrank.StreamedCaptions.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
from rich.progress import track

from mmrank.datasets.captions.caption_files import (
    CaptionedImage,
    CaptionList,
    clean_captions,
    read_caption_table,
)
from mmrank.datasets.image_header import image_size
from mmrank.datasets.retrieval.image_lists import BadLine
from mmrank.datasets.shards.shard_index import INDEX_FOLDER, ShardIndex
from mmrank.datasets.shards.stream import index_stream
from mmrank.datasets.shards.tar_shard import IMAGE_MEMBERS, index_tars
from mmrank.errors import UserError, show_user_errors
from mmrank.files import whole_folder
from mmrank.imports import required_package

_RANGE = re.compile(r'\{(\d+)\.\.(\d+)\}')
#: Field of the member ``json`` where images have several captions.
CAPTION_FIELD = 'caption'


def read_caption_folder(folder: str | Path) -> CaptionList:
    """Find images with their captions beside them: ``x.jpg`` and ``x.txt``."""
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
    """Write images and captions as shards with an index, whole or not at all; a seed shuffles."""
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


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest='kind', required=True)
    add = kinds.add_parser('pack', help='write shards and their index').add_argument
    source = 'a TSV, JSONL or JSON file, or a folder with NAME.jpg and NAME.txt'
    add('source', metavar='SOURCE', help=source)
    add('out', metavar='OUT', help='folder, not there yet')
    images = 'folder that the paths of a table start from (default: that of the table)'
    add('--images', help=images)
    add('--image-key', default='image', help='column of the path (default: %(default)s)')
    add('--caption-key', default='caption', help='column of the caption (default: %(default)s)')
    add('--samples', type=int, default=10_000, help='in a shard (default: %(default)s)')
    seed = 'shuffle the images first; a table that is sorted should be (default: keep the order)'
    add('--seed', type=int, help=seed)
    add = kinds.add_parser('index', help='number the samples of tar files').add_argument
    add('folder', metavar='FOLDER', help='with *.tar')
    caption = 'member with the caption, or json:FIELD (default: %(default)s)'
    add('--caption', default='txt', help=caption)
    add('--out', help='folder of the index (default: FOLDER/mmrank_index)')
    add = kinds.add_parser('stream', help='number those of a stream').add_argument
    add('out', metavar='OUT', help='folder of the index')
    path = 'webdataset, parquet, json, or a data set of the Hub'
    add('--path', required=True, help=path)
    add('--data-files', nargs='+', help='files or URLs; {0000..0099} stands for a hundred')
    add('--name', help='configuration of the data set')
    add('--revision', help='of a data set of the Hub')
    add('--split', default='train', help='default: %(default)s')
    add('--image', required=True, help='column of the image')
    add('--caption', required=True, help='column of the caption')
    add('--key', help='column of the key (default: the row and its captions)')
    args = parser.parse_args()
    if args.kind == 'pack' and args.samples < 1:
        parser.error(f'--samples must be at least 1, got {args.samples}')
    return args


def spelled_out(pattern: str) -> list[str]:
    """Names that a range in braces stands for: ``a-{08..09}``, ``a-08`` and ``a-09``."""
    found = _RANGE.search(pattern)
    if found is None:
        return [pattern]
    numbers = range(int(found[1]), int(found[2]) + 1)
    return [
        f'{pattern[: found.start()]}{number:0{len(found[1])}d}{rest}'
        for number in numbers
        for rest in spelled_out(pattern[found.end() :])
    ]


def make(args: argparse.Namespace) -> ShardIndex:
    """Do what the command line says; returns the index."""
    if args.kind == 'index':
        return index_tars(args.folder, args.caption, args.out)
    if args.kind == 'stream':
        load = dict(path=args.path, name=args.name, revision=args.revision, split=args.split)
        if args.data_files:
            load['data_files'] = [name for x in args.data_files for name in spelled_out(x)]
        load = {name: x for name, x in load.items() if x is not None}
        return index_stream(load, args.out, args.image, args.caption, args.key)
    source = Path(args.source)
    if source.is_dir():
        found, images = read_caption_folder(source), source
    else:
        found = read_caption_table(source, args.image_key, args.caption_key)
        images = source.parent if args.images is None else args.images
    return pack_shards(
        found,
        images,
        args.out,
        args.samples,
        args.seed,
        lambda order: track(order, 'Images', transient=True),
    )


@show_user_errors(OSError)
def main() -> None:
    index = make(parse_args())
    print(
        f'{index.folder}: {len(index)} samples with {len(index.text_ids)} '
        f'captions in {len(index.shards)} shards; digest {index.digest}'
    )


if __name__ == '__main__':
    sys.exit(main())
