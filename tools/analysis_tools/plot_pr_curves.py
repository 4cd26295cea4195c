"""Plot precision-recall curves of one or more detectors.

    python tools/analysis_tools/plot_pr_curves.py data/x/val.json \
        "stable AP=work_dirs/a/val.bbox.json" \
        "focal=work_dirs/b/val.bbox.json" --out pr_curves.png

The prediction files are what mmdet's CocoMetric writes when a config sets
val_evaluator.outfile_prefix (PREFIX writes PREFIX.bbox.json). The figure has
the mean over classes at IoU 0.5, 0.75 and 0.50:0.95, then a panel a class.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from mmrank.errors import show_user_errors
from mmrank.evaluation.box_evaluation import load_ground_truth

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.coco.pr_curves import PRCurves, plot_pr_curves
from research.coco.tables import comparison_rows, named_evaluations, rich_table


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('ann_file', help='COCO annotation file')
    parser.add_argument(
        'predictions',
        nargs='+',
        metavar='[NAME=]FILE',
        help='results file (*.bbox.json) of a model, with the name to show',
    )
    parser.add_argument('--out', default='pr_curves.png', help='default: %(default)s')
    parser.add_argument(
        '--max-classes',
        type=int,
        default=12,
        help='class panels, most frequent first (default: %(default)s)',
    )
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> int:
    """Evaluate, plot, and print the COCO figures."""
    args = parse_args()
    truth = load_ground_truth(args.ann_file)
    evaluations = named_evaluations(truth, args.predictions)
    header, rows = comparison_rows(evaluations)
    Console().print(rich_table(header, rows, args.ann_file))
    curves = {n: PRCurves.from_coco_eval(e) for n, e in evaluations.items()}
    print(f'Wrote {plot_pr_curves(curves, args.out, args.max_classes)}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
