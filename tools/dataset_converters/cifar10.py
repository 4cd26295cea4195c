r"""Put CIFAR images into one array a part, also shrunk, for fast loading.

    python tools/dataset_converters/cifar10.py cifar10_jpg data/cifar10
    python tools/dataset_converters/cifar10.py cifar10_jpg data/cifar10_16 --size 16

writes OUT/train.npz and OUT/test.npz with `images` (N, H, W, 3) uint8 in RGB, `labels` and
`classes`, which mmrank.CIFAR10LT, mmrank.CIFAR10BinaryLT and the CIFAR-100 ones read. SOURCE is
a folder of train/<class>/*.jpg and test/<class>/*.jpg, or one with the published
cifar-10-batches-py/ or cifar-100-python/.
"""

import itertools
import sys
from collections import defaultdict
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from mmrank.annotations.images import read_image
from mmrank.cli.options import tool_parser
from mmrank.datasets.retrieval.image_lists import scan_class_folders
from mmrank.errors import UserError, show_user_errors
from mmrank.files import write_atomically
from mmrank.pictures.tables import console_table


def read_folders(folder: Path, names: Sequence[str]) -> tuple[list[np.ndarray], np.ndarray]:
    """Images in RGB and labels, the first of each class before the second of each, and so on."""
    found = scan_class_folders(folder).images
    there = {image.class_name for image in found}
    if there != set(names):
        raise UserError(
            f'{folder} must have a folder of images for each of the {len(names)} classes; missing: '
            f'{sorted(set(names) - there)}, unknown: {sorted(there - set(names))}. Fix: unpack the '
            'data set again, or pass --classes'
        )
    labels = np.array([names.index(image.class_name) for image in found])
    next_turn = defaultdict(itertools.count)
    turns = [next(next_turn[label]) for label in labels]
    order = np.lexsort((labels, turns))
    return [read_image(folder / found[i].path)[..., ::-1] for i in order], labels[order]


def convert(source: Path, out: Path, size: int, num_classes: int) -> Table:
    """Write both parts of a folder with images of side ``size``; return what was written."""
    # Imported late: --help should not wait for mmpretrain.
    from mmrank.datasets.long_tail.cifar import HOSTS, SPLITS, read_cifar

    rows = []
    names = HOSTS[num_classes].METAINFO['classes']
    for split in SPLITS:
        if (source / split).is_dir():
            images, labels = read_folders(source / split, names)
        else:
            images, labels = read_cifar(source, split, num_classes)
        images = [cv2.resize(x, (size, size), None, 0, 0, cv2.INTER_AREA) for x in images]
        path = out / f'{split}.npz'
        file = BytesIO()
        np.savez(file, images=np.stack(images), labels=labels, classes=np.array(names))
        write_atomically(file.getvalue(), path)
        counts = np.bincount(labels, minlength=num_classes)
        per_class = sorted({int(counts.min()), int(counts.max())})
        spread = ' to '.join(f'{n:,}' for n in per_class)
        rows.append([split, f'{len(images):,}', spread, f'{path.stat().st_size / 1e6:.1f}'])
    title = f'CIFAR-{num_classes} at {size} x {size} pixels'
    return console_table(('part', 'images', 'per class', 'MB'), rows, title=title)


@show_user_errors(OSError, ImportError)
def main() -> None:
    size = 'side of the images in pixels, at most 32, their own size'
    parser = tool_parser(__doc__, size=(32, size))
    add = parser.add_argument
    add('source', metavar='SOURCE', help='folder')
    add('out', metavar='OUT', help='folder to write to')
    classes = 'CIFAR-10 or CIFAR-100 (default: %(default)s)'
    add('--classes', type=int, choices=(10, 100), default=10, help=classes)
    args = parser.parse_args()
    if not 1 <= args.size <= 32:
        parser.error(f'--size must be in 1 to 32, got {args.size}')
    table = convert(Path(args.source), Path(args.out), args.size, args.classes)
    console = Console()
    console.print(table)
    console.print(f'Wrote {args.out}.')


if __name__ == '__main__':
    sys.exit(main())
