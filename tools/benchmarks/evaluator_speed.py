r"""Speed of COCO's evaluators on synthetic predictions, and their equality.

    python tools/benchmarks/evaluator_speed.py
    python tools/benchmarks/evaluator_speed.py --images 200 --repeats 3

Both run in one process and in turn, so the ratio holds on a busy machine; single times do not.
Timed is what is between boxes in memory and COCO's
twelve figures. Needs faster-coco-eval. For your own predictions pass coco_table.py --evaluator
both.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.coco.evaluators import check_equality, find_evaluators
from research.common.command_line import benchmark_parser
from research.common.timing import both_times_in_turn
from research.synthetic.boxes import make_annotations, make_predictions


def parse_args(arguments=None) -> argparse.Namespace:
    parser = benchmark_parser(
        __doc__,
        images=2000,
        classes=80,
        objects=(7, 'objects an image, on average'),
        false=(94, 'false boxes an image, besides 0.9 per object'),
        repeats=(1, 'turns of each evaluator; the median counts'),
    )
    args = parser.parse_args(arguments)
    for name in ('images', 'classes', 'objects', 'repeats'):
        if getattr(args, name) < 1:
            parser.error(f'--{name} must be >= 1, got {getattr(args, name)}')
    return args


def run(args: argparse.Namespace, console: Console) -> float:
    """Time both evaluators and show the times; return their ratio."""
    evaluators = find_evaluators('both')
    with console.status('making annotations and predictions') as status:
        document = make_annotations(images=args.images, classes=args.classes, objects=args.objects)
        boxes = make_predictions(document, false=args.false)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'annotations.json'
            path.write_text(json.dumps(document), 'utf-8')
            truths = [one.load_truth(path) for one in evaluators]
        evaluations = {}

        def evaluate(one, truth):
            status.update(one.name)
            evaluations[one.name], _ = one.evaluate(truth, boxes)

        steps = {one.name: (evaluate, (one, truth)) for one, truth in zip(evaluators, truths)}
        times = {k: x.wall for k, x in both_times_in_turn(steps, args.repeats).items()}
    gap = check_equality(*evaluations.values(), 'synthetic boxes')
    medians = {k: statistics.median(v) for k, v in times.items()}
    slow, fast = medians.values()
    console.print(
        f'{args.images:,} images, {args.classes} classes, '
        f'{len(boxes) / args.images:.0f} boxes an image'
    )
    table = Table()
    for title in ('evaluator', 'seconds', 'ratio'):
        table.add_column(title, justify='left' if title[0] == 'e' else 'right')
    for name, value in medians.items():
        table.add_row(name, f'{value:.2f}', f'{slow / value:.1f}')
    console.print(table)
    console.print(f'largest difference of any figure: {gap:.1e}')
    return slow / fast


@show_user_errors()
def main() -> None:
    """Run, and turn a missing package into one line."""
    run(parse_args(), Console())


if __name__ == '__main__':
    sys.exit(main())
