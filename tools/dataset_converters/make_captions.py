r"""Make a small captioned data set from images whose classes are known.

  # 10 classes, long-tailed: 1000 images of the first, 100 of the last
  python tools/dataset_converters/make_captions.py cifar10_jpg \
      data/cifar10_captions --size 16 --per-class 1000 --imbalance 10
  # COCO's boxes, 80 % train, 10 % val, 10 % test by the order of the file
  python tools/dataset_converters/make_captions.py \
      data/coco128/annotations/instances_train2017.json data/coco_captions \
      --images data/coco128/train2017 --size 224

A class becomes "a dark photo of a plane", boxes "two people and a dog". OUT gets train.jsonl,
val.jsonl and test.jsonl, read by mmrank.CaptionTable, and the images, whole or not at all.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track

from captions import captions_of, class_words, object_words
from mmrank.annotations.check import read_checked
from mmrank.annotations.images import IMAGE_SUFFIXES, read_image
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.datasets.long_tail.class_subset import exponential_sizes, shuffled_classes
from mmrank.errors import UserError, show_user_errors
from mmrank.files import path_fault, whole_folder
from mmrank.pictures.tables import console_table


class Item(NamedTuple):
    """An image to write: its part, class or kind, new and old file, and what it shows."""

    part: str
    kind: str
    file: str
    path: Path
    describe: Callable[[np.random.Generator], str]
    extra: dict


def class_items(source: Path, args: argparse.Namespace) -> Iterator[Item]:
    """Choose images of a folder of ``<split>/<class>/<image>``."""
    found: dict = defaultdict(lambda: defaultdict(list))
    for path in sorted(source.glob('*/*/*')):
        if path.suffix.lower() in IMAGE_SUFFIXES:
            split, name = path.parts[-3:-1]
            found[split][name].append(path)
    classes = sorted(found['train'])
    if len(classes) < 2 or classes != sorted(found['test']):
        what = f'{args.source} must have the same classes, two at least, in train/ and test/'
        fix = 'pass a folder of train/<class>/*.jpg and test/<class>/*.jpg'
        raise UserError(f'{what}, got {classes[:5]} and {sorted(found["test"])[:5]}', fix)
    try:
        sizes = exponential_sizes(len(classes), args.per_class, args.imbalance)
    except ValueError as error:
        raise UserError(f'--imbalance {args.imbalance:g}: {error}') from error
    held = args.val_per_class
    for split in ('train', 'test'):
        labels = np.repeat(np.arange(len(classes)), [len(found[split][x]) for x in classes])
        paths = [path for x in classes for path in found[split][x]]
        for label, order in enumerate(shuffled_classes(labels, args.seed)):
            name = classes[label]
            wanted = held + sizes[label] if split == 'train' else held
            if len(order) < wanted:
                raise UserError(
                    f'class {name} has {len(order)} images in {split}/, but {wanted} are '
                    'requested. Fix: lower --per-class or --val-per-class'
                )
            for place, index in enumerate(order[:wanted]):
                part = 'val' if split == 'train' and place < held else split
                file = f'{part}/{name}/{place - held * (part == "train"):05d}.png'
                describe = partial(class_words, name)
                yield Item(part, name, file, paths[index], describe, dict(label=name))


def object_items(path: Path, folder: Path) -> Iterator[Item]:
    """Split the images of a COCO file that have a box."""
    document, report = read_checked(path)
    objects: dict[object, Counter] = defaultdict(Counter)
    for box in document['annotations']:
        objects[box['image_id']][report.names[box['category_id']]] += 1
    images = [(x['id'], x['file_name']) for x in document['images'] if x['id'] in objects]
    for image_id, name in images:
        if fault := path_fault(name):
            what = f'{path}: image id {image_id!r:.80}: file_name {name!r:.100} {fault}'
            raise UserError(what, 'make it relative to --images')
    for place, (image_id, name) in enumerate(images):
        share = place / len(images)
        part = 'train' if share < 0.8 else 'val' if share < 0.9 else 'test'
        describe = partial(object_words, objects[image_id])
        # The whole name: a.jpg may be beside a.png, and day/1.jpg beside night/1.jpg.
        yield Item(part, 'images', f'{part}/{name}.png', folder / name, describe, {})


def write(items: list[Item], args: argparse.Namespace, out: Path) -> dict[str, Counter]:
    """Write the images, and a JSON object a line for each part; return images by part and kind."""
    rng = np.random.Generator(np.random.PCG64(args.seed))
    counts: dict[str, Counter] = defaultdict(Counter)
    lines: dict[str, list[dict]] = defaultdict(list)
    for item in track(items, 'Images', transient=True):
        image = read_image(item.path)
        if args.size is not None:
            image = cv2.resize(image, (args.size, args.size), interpolation=cv2.INTER_AREA)
        path = out / item.file
        path.parent.mkdir(parents=True, exist_ok=True)
        if not cv2.imwrite(str(path), image):
            raise OSError(f'cannot write {path}: is the disk full?')
        captions = captions_of(item.describe, image[..., ::-1], 2, rng)
        lines[item.part].append(dict(image=item.file, caption=captions, **item.extra))
        counts[item.part][item.kind] += 1
    for part, entries in lines.items():
        text = ''.join(json.dumps(x) + '\n' for x in entries)
        (out / f'{part}.jsonl').write_text(text, encoding='utf-8')
    return counts


@show_user_errors(OSError)
def main() -> None:
    held = 'validation images of each class, out of the training images, and as many test images'
    parser = tool_parser(
        __doc__,
        per_class=(1000, 'training images of the largest class'),
        imbalance=(1.0, 'size of the largest over that of the smallest class'),
        val_per_class=(100, held),
        seed=0,
    )
    add = parser.add_argument
    source = 'folder with train/<class>/ and test/<class>/, or a COCO annotation file'
    add('source', metavar='SOURCE', help=source)
    add('out', metavar='OUT', help='folder to write to')
    add('--images', help='folder of the COCO images')
    add('--size', type=int, help='side of the images (default: as they are)')
    args = parse_at_least(parser, size=1, per_class=1, val_per_class=1)
    if args.source.endswith('.json') and not args.images:
        parser.error('a COCO annotation file needs --images FOLDER')
    source = Path(args.source)
    with whole_folder(args.out, source) as out:
        if args.images:
            counts = write([*object_items(source, Path(args.images))], args, out)
        else:
            counts = write([*class_items(source, args)], args, out)
    names = sorted({name for part in counts.values() for name in part})
    rows = [[part, *(images[name] for name in names)] for part, images in counts.items()]
    console = Console()
    console.print(console_table(('part', *names), rows, title='Images'))
    console.print(f'Wrote {args.out}.')


if __name__ == '__main__':
    sys.exit(main())
