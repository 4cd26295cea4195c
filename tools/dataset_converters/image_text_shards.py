r"""Pack images with captions into shards, and number the samples of shards.

    python tools/dataset_converters/image_text_shards.py pack \ data/cc3m/train.tsv data/cc3m_shards
        --images data/cc3m \
        --image-key filepath --caption-key title --seed 0
    python tools/dataset_converters/image_text_shards.py index data/laion python
    tools/dataset_converters/image_text_shards.py stream \
        data/cc12m_index --path webdataset --split train \
        --data-files 'https://host/cc12m-{0000..2175}.tar' \
        --image jpg --caption txt --key __key__

`pack` writes tar files in WebDataset's form from a table (TSV, JSONL, JSON) or from a folder with
NAME.jpg beside NAME.txt. It numbers the samples too. `index` numbers the samples of shards that are
there, for mmrank.ShardedCaptions; `stream` those of a data set that Hugging Face's `datasets`
streams, for mmrank.StreamedCaptions: each shard is read once.
"""

import argparse
import re
import sys
from pathlib import Path

from rich.progress import track

from mmrank.datasets.captions.caption_files import read_caption_table
from mmrank.datasets.shards.pack_shards import pack_shards, read_caption_folder
from mmrank.datasets.shards.shard_index import ShardIndex
from mmrank.datasets.shards.stream import index_stream
from mmrank.datasets.shards.tar_shard import index_tars
from mmrank.errors import show_user_errors

_RANGE = re.compile(r'\{(\d+)\.\.(\d+)\}')


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest='kind', required=True)
    pack = kinds.add_parser('pack', help='write shards and their index')
    pack.add_argument(
        'source',
        metavar='SOURCE',
        help='a TSV, JSONL or JSON file, or a folder with NAME.jpg and NAME.txt',
    )
    pack.add_argument('out', metavar='OUT', help='folder, not there yet')
    pack.add_argument(
        '--images', help='folder that the paths of a table start from (default: that of the table)'
    )
    pack.add_argument(
        '--image-key', default='image', help='column of the path (default: %(default)s)'
    )
    pack.add_argument(
        '--caption-key', default='caption', help='column of the caption (default: %(default)s)'
    )
    pack.add_argument(
        '--samples', type=int, default=10_000, help='in a shard (default: %(default)s)'
    )
    pack.add_argument(
        '--seed',
        type=int,
        help='shuffle the images first; a table that is sorted should be (default: keep the order)',
    )
    index = kinds.add_parser('index', help='number the samples of tar files')
    index.add_argument('folder', metavar='FOLDER', help='with *.tar')
    index.add_argument(
        '--caption',
        default='txt',
        help='member with the caption, or json:FIELD (default: %(default)s)',
    )
    index.add_argument('--out', help='folder of the index (default: FOLDER/mmrank_index)')
    stream = kinds.add_parser('stream', help='number those of a stream')
    stream.add_argument('out', metavar='OUT', help='folder of the index')
    stream.add_argument(
        '--path', required=True, help='webdataset, parquet, json, or a data set of the Hub'
    )
    stream.add_argument(
        '--data-files', nargs='+', help='files or URLs; {0000..0099} stands for a hundred'
    )
    stream.add_argument('--name', help='configuration of the data set')
    stream.add_argument('--revision', help='of a data set of the Hub')
    stream.add_argument('--split', default='train', help='default: %(default)s')
    for column in ('image', 'caption'):
        stream.add_argument(f'--{column}', required=True, help=f'column of the {column}')
    stream.add_argument('--key', help='column of the key (default: the row and its captions)')
    args = parser.parse_args()
    if args.kind == 'pack' and args.samples < 1:
        parser.error(f'--samples must be at least 1, got {args.samples}')
    return args


def spelled_out(pattern: str) -> list[str]:
    """Names that a range in braces stands for.

    Args:
        pattern: Such as ``a-{08..10}.tar``.

    Returns:
        ``a-08.tar``, ``a-09.tar`` and ``a-10.tar``; without a range the pattern itself.
    """
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
    """Write shards, an index or both, and say how much they hold."""
    index = make(parse_args())
    print(
        f'{index.folder}: {len(index)} samples with {len(index.text_ids)} '
        f'captions in {len(index.shards)} shards; digest {index.digest}'
    )


if __name__ == '__main__':
    sys.exit(main())
