r"""Put CIFAR images into one array a part, also shrunk, for fast loading.

    python tools/dataset_converters/cifar10.py cifar10_jpg.zip data/cifar10
    python tools/dataset_converters/cifar10.py cifar10_jpg.zip \
        data/cifar10_16 --size 16

writes OUT/train.npz and OUT/test.npz with `images` (N, H, W, 3) uint8 in RGB,
`labels` and `classes`, which mmrank.CIFAR10LT, mmrank.CIFAR10BinaryLT and
their CIFAR-100 twins read. SOURCE is a zip or a folder of
train/<class>/*.jpg and test/<class>/*.jpg, or a folder with the published
cifar-10-batches-py/ or cifar-100-python/.
"""

import argparse
import sys
import tempfile
import zipfile
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('source', metavar='SOURCE', help='zip or folder')
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    parser.add_argument(
        '--size',
        type=int,
        default=32,
        help='side of the images in pixels, at most 32, their own size '
        '(default: %(default)s)',
    )
    parser.add_argument(
        '--classes',
        type=int,
        choices=(10, 100),
        default=10,
        help='CIFAR-10 or CIFAR-100 (default: %(default)s)',
    )
    args = parser.parse_args()
    if not 1 <= args.size <= 32:
        parser.error(f'--size must be in 1 to 32, got {args.size}')
    return args


def unpack(archive: Path, folder: Path) -> None:
    """Unpack what lies in train/ and test/.

    Args:
        archive: The zip.
        folder: Where to.

    Raises:
        ValueError: If it holds neither.
    """
    with zipfile.ZipFile(archive) as zipped:
        members = [
            name
            for name in zipped.namelist()
            if name.split('/')[0] in ('train', 'test')
        ]
        if not members:
            raise ValueError('holds neither train/ nor test/')
        zipped.extractall(folder, members)


def convert(source: Path, out: Path, size: int, num_classes: int) -> Table:
    """Write both parts.

    Args:
        source: Folder.
        out: Folder to write to.
        size: Side of the images.
        num_classes: 10 or 100.

    Returns:
        What was written.

    Raises:
        ValueError: If an image or the folder cannot be read.
        OSError: If a file cannot be written.
    """
    # Imported late: --help should not wait for mmpretrain.
    from mmrank.datasets.long_tail.cifar_images import (
        HOSTS,
        SPLITS,
        read_cifar,
    )

    table = Table(title=f'CIFAR-{num_classes} at {size} x {size} pixels')
    table.add_column('part')
    for column in ('images', 'per class', 'MB'):
        table.add_column(column, justify='right')
    for split in SPLITS:
        found = read_cifar(source, split, num_classes)
        images = found.take(np.arange(len(found.labels)))
        if images.shape[1:3] != (size, size):
            images = np.stack(
                [
                    cv2.resize(image, (size, size), None, 0, 0, cv2.INTER_AREA)
                    for image in images
                ]
            )
        out.mkdir(parents=True, exist_ok=True)
        path = out / f'{split}.npz'
        np.savez(
            path,
            images=images,
            labels=found.labels,
            classes=np.array(HOSTS[num_classes].METAINFO['classes']),
        )
        counts = np.bincount(found.labels, minlength=num_classes)
        per_class = sorted({int(counts.min()), int(counts.max())})
        table.add_row(
            split,
            f'{len(images):,}',
            ' to '.join(f'{n:,}' for n in per_class),
            f'{path.stat().st_size / 1e6:.1f}',
        )
    return table


def main() -> int:
    """Unpack, convert, and show what was written."""
    args = parse_args()
    source, out = Path(args.source), Path(args.out)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = source
            if source.is_file():
                folder = Path(scratch)
                unpack(source, folder)
            table = convert(folder, out, args.size, args.classes)
    except (OSError, ValueError, ImportError, zipfile.BadZipFile) as error:
        print(f'error: {args.source}: {error}', file=sys.stderr)
        return 1
    console = Console()
    console.print(table)
    console.print(f'Wrote {args.out}.')
    return 0


if __name__ == '__main__':
    sys.exit(main())
