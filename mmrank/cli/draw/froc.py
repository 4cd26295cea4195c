r"""Draw recall by false alarms an image (FROC) of detectors, and print it within budgets of them.

    mmrank draw froc data/x/val.json \
        "stable AP=work_dirs/a/val.bbox.json" "focal=work_dirs/b/val.bbox.json" --at recall@fp1

A dot marks the score that reaches --at: f1, recall@fp1 (at most 1 false alarm an image),
recall@p0.9 (at a precision). The figures, each with its score, go beside it as .md and .csv.
"""

from pathlib import Path

from rich.console import Console

from mmrank.cli.draw.predictions import add_predictions, read_evaluations
from mmrank.cli.options import check_outputs, tool_parser
from mmrank.evaluation.operating_points import FIGURES, matches_by_class, parse_figure, pool
from mmrank.pictures.froc import froc_rows, plot_froc
from mmrank.pictures.tables import console_table, write_table


def main() -> None:
    parser = tool_parser(
        __doc__,
        out=('froc.png', 'PNG to write'),
        at=('f1', 'figure to mark'),
        figures=([*FIGURES], 'figures of the table'),
        iou=(0.5, 'overlap from which a box finds an object'),
    )
    add_predictions(parser)
    args = parser.parse_args()
    check_outputs(args, 'out')
    for figure in [args.at, *args.figures]:
        parse_figure(figure)
    truth, evaluations = read_evaluations(args)
    models = {}
    for model, evaluation in evaluations.items():
        classes = matches_by_class(evaluation, args.iou)
        models[model] = {'all classes': pool(classes.values())}
        models[model].update({truth.cats[i]['name']: own for i, own in classes.items()})
    header = ['class', 'objects', '% at score', *models]
    rows = froc_rows(models, args.figures)
    title = f'{Path(args.ann_file).name}, {len(truth.imgs)} images, IoU {args.iou:g}'
    Console().print(console_table(header, rows, title=title))
    tables = write_table(header, rows, Path(args.out).with_suffix(''), title)
    picture = plot_froc(models, args.out, args.at)
    print(f'Wrote {", ".join(map(str, [picture, *tables]))}')
