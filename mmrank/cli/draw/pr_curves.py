r"""Plot precision-recall curves of detectors.

    mmrank draw pr-curves data/x/val.json \
        "stable AP=work_dirs/a/val.bbox.json" "focal=work_dirs/b/val.bbox.json"

CocoMetric writes such files where the config sets val_evaluator.outfile_prefix. The figure has the
mean over classes at IoU 0.5, 0.75 and 0.50:0.95, and a panel for each class. A table of all figures
goes beside it as .md and .csv. Annotations of LVIS are evaluated by the package lvis.
"""

from pathlib import Path

from rich.console import Console

from mmrank.cli.draw.predictions import add_predictions, read_evaluations
from mmrank.cli.options import check_outputs, tool_parser
from mmrank.pictures.pr_curves import PRCurves, plot_pr_curves, show_comparison


def main() -> None:
    parser = tool_parser(
        __doc__,
        out=('pr_curves.png', 'PNG to write'),
        max_classes=(12, 'class panels, most frequent first'),
    )
    add_predictions(parser)
    args = parser.parse_args()
    check_outputs(args, 'out')
    truth, evaluations = read_evaluations(args, with_lvis=True)
    title = f'{Path(args.ann_file).name}, {len(truth.imgs)} images'
    tables = show_comparison(evaluations, Path(args.out).with_suffix(''), title, Console())
    curves = {n: PRCurves.of(e) for n, e in evaluations.items()}
    picture = plot_pr_curves(curves, args.out, args.max_classes)
    print(f'Wrote {", ".join(map(str, [picture, *tables]))}')
