"""Copy the Grocery Store data set and write the lists that the configs read.

    python tools/dataset_converters/grocery.py GROCERY data/grocery

GROCERY holds train.txt, val.txt and test.txt with a line `path,fine,coarse` an image, classes.csv
with the columns fine, fine_name and description, and the images (Klasson et al., A Hierarchical
Grocery Store Image Dataset, WACV 2019, MIT licence). OUT gets the images, images.txt
(mmrank.ClassFolder), products.txt (names by label), hierarchy.txt (coarse class and product),
{train,val,test}.txt (mmpretrain.CustomDataset), train_ratio50.txt, with n_0 / 50^(c / (C - 1))
images of the class of rank c, and captions_{train,val,test}.jsonl (mmrank.CaptionTable), whole or
not at all.
"""

import csv
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.files import path_fault, whole_folder

SPLITS = ('train', 'val', 'test')
RATIO = 50


def read_products(path: Path) -> tuple[list[str], list[str]]:
    """Names and descriptions of the products, by label."""
    try:
        with open(path, newline='', encoding='utf-8') as file:
            rows = sorted(csv.DictReader(file), key=lambda row: int(row['fine']))
        labels = [int(row['fine']) for row in rows]
        names, texts = ([row[x].strip() for row in rows] for x in ('fine_name', 'description'))
    except (KeyError, TypeError, ValueError) as error:
        what = f'{path} lacks a column or has a bad number: {error!r}'
        raise UserError(what, 'columns fine, fine_name and description') from error
    if labels != list(range(len(labels))) or len(set(names)) < len(names):
        what = f'{path} has the labels {labels[:5]}, ... with {len(set(names))} names'
        raise UserError(what, f'each of 0 to {len(labels) - 1} once, with a name of its own')
    return names, texts


def read_split(path: Path, classes: int) -> list[tuple[str, int, str]]:
    """Path, label and coarse label of each image of a split."""
    items = []
    for number, line in enumerate(path.read_text('utf-8').splitlines(), 1):
        fields = [field.strip() for field in line.split(',')]
        if len(fields) != 3 or not fields[1].isdigit():
            raise UserError(f'{path}:{number} is {line!r:.100}. Fix: path,fine,coarse')
        if (fault := path_fault(fields[0])) or int(fields[1]) >= classes:
            what = f'{path}:{number}: {fault or f"label {fields[1]}"}'
            raise UserError(what, f'a path within the folder and a label below {classes}')
        items.append((fields[0], int(fields[1]), fields[2]))
    return items


def long_tail(items: list[tuple[str, int]], ratio: float) -> list[tuple[str, int]]:
    """The first images of each class, exponentially fewer by its rank, in their order."""
    of_class = defaultdict(list)
    for item in items:
        of_class[item[1]].append(item)
    ranked = sorted(of_class, key=lambda c: (-len(of_class[c]), c))
    most = len(of_class[ranked[0]])
    kept = set()
    for rank, label in enumerate(ranked):
        count = most * ratio ** (-rank / max(1, len(ranked) - 1))
        kept.update(of_class[label][: max(1, round(count))])
    return [item for item in items if item in kept]


def convert(folder: Path, out: Path) -> dict[str, int]:
    """Write lists and images; return the number of images of each list."""

    def write_lines(name: str, lines: list[str]) -> None:
        (out / name).write_text(''.join(f'{line}\n' for line in lines), 'utf-8')

    names, texts = read_products(folder / 'classes.csv')
    listed = {x: read_split(folder / f'{x}.txt', len(names)) for x in SPLITS}
    coarse = {c: x for items in listed.values() for _, c, x in items}
    splits = {x: [(path, c) for path, c, _ in items] for x, items in listed.items()}
    images = [item for items in splits.values() for item in items]
    for path, _ in track(images, 'Images', transient=True):
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / path, target)
    write_lines('products.txt', names)
    write_lines('hierarchy.txt', [f'{coarse[c]}\t{names[c]}' for c in sorted(coarse)])
    write_lines('images.txt', [f'{path}\t{names[c]}' for path, c in images])
    for split, items in splits.items():
        captions = [dict(image=p, caption=[names[c], texts[c]], label=names[c]) for p, c in items]
        lines = [json.dumps(entry, ensure_ascii=False) for entry in captions]
        write_lines(f'captions_{split}.jsonl', lines)
    splits[f'train_ratio{RATIO}'] = long_tail(splits['train'], RATIO)
    for split, items in splits.items():
        write_lines(f'{split}.txt', [f'{p} {c}' for p, c in items])
    return {split: len(items) for split, items in splits.items()}


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('folder', metavar='GROCERY', type=Path)
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    args = parser.parse_args()
    with whole_folder(args.out, args.folder) as out:
        counts = convert(args.folder, out)
    listed = ', '.join(f'{count} {split}' for split, count in counts.items())
    Console().print(f'Wrote {args.out}: images of {listed}.')


if __name__ == '__main__':
    sys.exit(main())
