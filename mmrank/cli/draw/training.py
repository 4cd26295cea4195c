r"""Draw losses, rates and metrics of trainings over their steps.

    mmrank draw training work_dirs/NAME
    mmrank draw training "stable AP=work_dirs/a" "focal=work_dirs/b" --keys loss 'coco/bbox_mAP*'
    mmrank draw training work_dirs/NAME --list

A training and its resumes are one line.
"""

from pathlib import Path

from mmrank.cli.options import check_outputs, named_paths, split_name, tool_parser
from mmrank.pictures.training_curves import plot_training_curves, read_training_logs


def main() -> None:
    parser = tool_parser(
        __doc__,
        keys=(['*loss*'], 'scalars to draw, with * and ?'),
        out=(None, 'image file (default: training_curves.png in the first folder)'),
        list=(False, 'only list the scalars'),
    )
    parser.add_argument(
        'trainings', nargs='+', metavar='[NAME=]FOLDER', help='work folder, or scalars.json file'
    )
    args = parser.parse_args()
    logs = []
    for name, path in named_paths(args.trainings, lambda x: Path(x).absolute().name).items():
        logs += read_training_logs(path, name)
    if args.list:
        for log in logs:
            print(f'{log.name}: {", ".join(log.curves)}')
        return
    if args.out is None:
        first = Path(split_name(args.trainings[0])[1])
        args.out = str((first.parent if first.is_file() else first) / 'training_curves.png')
    check_outputs(args, 'out')
    path = plot_training_curves(logs, args.out, args.keys)
    print(f'Wrote {path}')
