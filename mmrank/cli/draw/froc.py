r"""Draw recall by false alarms an image (FROC) of detectors, and print it at budgets of them.

    mmrank draw froc data/x/val.json \
        "stable AP=work_dirs/a/val.bbox.json" "focal=work_dirs/b/val.bbox.json" --at recall@fp1

CocoMetric writes such files where the config sets val_evaluator.outfile_prefix. A panel for all
classes together is followed by one for each; a dot marks the score at which --at is reached. The
figures go to the same name with .md and .csv: recall, f1, recall@fp1 (at most 1 false alarm an
image), recall@p0.9 (at a precision), each with its score.
"""

from pathlib import Path

from rich.console import Console

from mmrank.cli.draw.predictions import add_predictions, read_evaluations
from mmrank.cli.options import check_outputs, tool_parser
from mmrank.evaluation.operating_points import FIGURES, check_iou, matches_by_class, parse_figure
from mmrank.pictures.froc import froc_rows, plot_froc, with_all
from mmrank.pictures.tables import console_table, write_table


def main() -> None:
    parser = tool_parser(
        __doc__,
        out=('froc.png', 'PNG to write'),
        at=('f1', 'figure to mark'),
        figures=([*FIGURES], 'figures of the table'),
        iou=(0.5, 'overlap from which a box finds an object'),
        max_panels=(12, 'panels, all classes and the most frequent ones'),
    )
    add_predictions(parser)
    args = parser.parse_args()
    check_outputs(args, 'out')
    for figure in (args.at, *args.figures):
        parse_figure(figure)
    check_iou(args.iou)
    truth, evaluations = read_evaluations(args)
    matches = {name: matches_by_class(x, args.iou) for name, x in evaluations.items()}
    models = with_all(matches, {i: x['name'] for i, x in truth.cats.items()})
    header, rows = froc_rows(models, args.figures)
    title = f'{Path(args.ann_file).name}, {len(truth.imgs)} images, IoU {args.iou:g}'
    Console().print(console_table(header, rows, title=title))
    align = 'l' + 'r' * len(models)
    tables = write_table(header, rows, Path(args.out).with_suffix(''), title, align=align)
    picture = plot_froc(models, args.out, args.at, args.max_panels)
    print(f'Wrote {", ".join(map(str, [picture, *tables]))}')
