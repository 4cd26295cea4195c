r"""Shrink the drawings of Omniglot for small experiments.

    python tools/dataset_converters/omniglot.py \
        images_background_small1 data/omniglot --size 28

writes OUT/<alphabet>/<character>/<drawing>.png in grey, ink white on black, which
configs/_base_/datasets/omniglot_28_pk.py reads. Several unpacked archives may go to the same
folder. Files of the same name are replaced. OUT is written whole or not at all.
"""

import sys
from collections import defaultdict
from pathlib import Path

import cv2
from rich.console import Console
from rich.progress import track

from mmrank.annotations.images import read_image
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.files import whole_folder
from mmrank.pictures.tables import console_table


def shrink(folder: Path, out: Path, size: int) -> dict:
    """Write all drawings of a folder, ink white on black; number of drawings by alphabet."""
    counts: dict = defaultdict(lambda: defaultdict(int))
    files = sorted(folder.rglob('*.png'))
    for file in track(files, 'Drawings', transient=True):
        parts = file.relative_to(folder).parts[-3:]
        if len(parts) < 3:
            what = f'{file} is not of the form alphabet/character/drawing.png'
            raise UserError(what, 'pass a folder of alphabet/character/*.png')
        ink = 255 - read_image(file, cv2.IMREAD_GRAYSCALE)
        target = out.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        image = cv2.resize(ink, (size, size), interpolation=cv2.INTER_AREA)
        if not cv2.imwrite(str(target), image):
            raise OSError(f'cannot write {target}: is the disk full?')
        counts[parts[0]][parts[1]] += 1
    if not counts:
        raise UserError(f'{folder} holds no drawing. Fix: unpack images_background*.zip there')
    return counts


@show_user_errors(OSError)
def main() -> None:
    size = 'side of the drawings in pixels, at most 105, their own size'
    parser = tool_parser(__doc__, size=(28, size))
    folders = 'folder with the content of images_background*.zip or images_evaluation.zip'
    parser.add_argument('folders', nargs='+', metavar='FOLDER', type=Path, help=folders)
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    args = parser.parse_args()
    if not 1 <= args.size <= 105:
        parser.error(f'--size must be in 1 to 105, got {args.size}')
    console = Console()
    rows = []
    with whole_folder(args.out) as out:
        for folder in args.folders:
            counts = shrink(folder, out, args.size)
            for alphabet, characters in sorted(counts.items()):
                rows.append([alphabet, len(characters), sum(characters.values())])
    header = ('alphabet', 'characters', 'drawings')
    title = f'Drawings of {args.size} x {args.size} pixels'
    console.print(console_table(header, rows, title=title))
    console.print(f'Wrote {args.out}.')


if __name__ == '__main__':
    sys.exit(main())
