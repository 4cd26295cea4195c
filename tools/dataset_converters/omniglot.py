r"""Unpack Omniglot and shrink its drawings for small experiments.

    python tools/dataset_converters/omniglot.py \
        images_background_small1.zip data/omniglot --size 28

writes OUT/<alphabet>/<character>/<drawing>.png in grey, ink white on black,
which configs/_base_/datasets/omniglot_28_pk.py reads. Several zips may go to
the same folder. Files of the same name are replaced.
"""

import argparse
import sys
import zipfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        'zips',
        nargs='+',
        metavar='ZIP',
        help='images_background*.zip or images_evaluation.zip',
    )
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    parser.add_argument(
        '--size',
        type=int,
        default=28,
        help='side of the drawings in pixels, at most 105, their own size '
        '(default: %(default)s)',
    )
    args = parser.parse_args()
    if not 1 <= args.size <= 105:
        parser.error(f'--size must be in 1 to 105, got {args.size}')
    return args


def convert(png: bytes, size: int) -> np.ndarray:
    """Decode a drawing, black ink on white, and shrink its negative.

    Args:
        png: The file.
        size: Side of the result.

    Returns:
        (size, size) uint8, 255 where ink covers the whole pixel.

    Raises:
        ValueError: If it cannot be decoded.
    """
    image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise ValueError('not an image')
    return cv2.resize(255 - image, (size, size), interpolation=cv2.INTER_AREA)


def unpack(archive: zipfile.ZipFile, out: Path, size: int) -> dict:
    """Write all drawings of an archive.

    Args:
        archive: Members are ``.../alphabet/character/drawing.png``.
        out: Folder to write to.
        size: Side of the drawings.

    Returns:
        Per alphabet the number of drawings of every character.

    Raises:
        ValueError: If a drawing cannot be read.
        OSError: If one cannot be written.
    """
    counts: dict = defaultdict(lambda: defaultdict(int))
    members = [m for m in archive.namelist() if m.endswith('.png')]
    for member in track(members, 'Drawings', transient=True):
        parts = PurePosixPath(member).parts[-3:]
        if len(parts) < 3 or '..' in parts:
            raise ValueError(
                f'{member} is not of the form alphabet/character/drawing.png'
            )
        try:
            image = convert(archive.read(member), size)
        except (ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f'{member} cannot be read: {error}') from error
        target = out.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not cv2.imwrite(str(target), image):
            raise OSError(f'cannot write {target}: is the disk full?')
        counts[parts[0]][parts[1]] += 1
    return counts


def main() -> int:
    """Unpack, and show what was found."""
    args = parse_args()
    console = Console()
    table = Table(title=f'Drawings of {args.size} x {args.size} pixels')
    table.add_column('alphabet')
    for column in ('characters', 'drawings'):
        table.add_column(column, justify='right')
    for name in args.zips:
        try:
            with zipfile.ZipFile(name) as archive:
                counts = unpack(archive, Path(args.out), args.size)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            print(f'error: {name}: {error}', file=sys.stderr)
            return 1
        if not counts:
            print(f'error: {name} holds no drawing', file=sys.stderr)
            return 1
        for alphabet, characters in sorted(counts.items()):
            total = sum(characters.values())
            table.add_row(alphabet, str(len(characters)), str(total))
    console.print(table)
    console.print(f'Wrote {args.out}.')
    return 0


if __name__ == '__main__':
    sys.exit(main())
