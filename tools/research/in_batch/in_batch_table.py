r"""Tables 5 and 6 of "in-batch bias of two-tower models", by one command.

    python tools/research/in_batch/in_batch_table.py \
        configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py

For each batch ratio, loss and pointwise loss: the paper's search for a learning rate, then training
until no metric improves for 10 epochs; the same objectives by L-BFGS on all pairs. Finished cells
are kept in OUT/results.csv, from which the command resumes. The paper's limits take days;
--max-steps ends a training earlier.
"""

from mmrank.interruption import AGAIN, end_on_signals

if __name__ == '__main__':
    end_on_signals(AGAIN)  # the imports below take seconds
import argparse
import sys
from pathlib import Path

import torch
from mmengine.config import Config
from rich.console import Console

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lib.common.command_line import tool_parser
from research.in_batch.plots import plot_study, write_study_tables
from research.in_batch.search import SearchRule
from research.in_batch.study import (
    CHOICE,
    SAMPLED_MODES,
    StudyRecord,
    StudySettings,
    run_cell,
    study_cells,
)
from research.in_batch.training import TwoTowerData


def parse_args() -> argparse.Namespace:
    rule, settings = SearchRule(), StudySettings()
    parser = tool_parser(
        __doc__,
        ratios=([1e-5, 1e-4, 1e-3, 1e-2, 1e-1], 'batch ratios |Ohat|^2 / |O|^2'),
        no_full=(False, 'no full gradients'),
        first_exponent=(rule.first_exponent, 'the first learning rate is 2 to this'),
        divergence=(
            rule.divergence,
            'abandon a learning rate when the objective exceeds this multiple of its first value',
        ),
        checks_per_epoch=(rule.checks_per_epoch, 'how often metrics are computed'),
        max_iterations=(settings.max_iterations, 'end L-BFGS after this many iterations'),
        device='cpu',
        threads=(torch.get_num_threads(), 'CPU threads'),
    )
    add = parser.add_argument
    add('config', help='config of configs/in_batch')
    add('--out', type=Path, default=Path('work_dirs/in_batch_table'), help='folder of results')
    modes, losses = list(SAMPLED_MODES), ['square', 'logistic']
    add('--modes', nargs='*', choices=modes, default=modes, help='losses of batches (default: all)')
    add('--pointwise', nargs='+', choices=losses, default=losses)
    add(
        '--max-steps',
        type=int,
        nargs='+',
        help='end a training after this many steps: one number, or one for each of --ratios '
        '(default: no limit)',
    )
    args = parser.parse_args()
    steps = args.max_steps or []
    if len(steps) not in (0, 1, len(args.ratios)):
        parser.error(
            f'--max-steps must be one number or {len(args.ratios)}, one for '
            f'each of --ratios, got {len(steps)}'
        )
    if not all(0 < x <= 1 for x in args.ratios):
        parser.error(f'--ratios must be in (0, 1], got {args.ratios}')
    return args


def settings_of(args: argparse.Namespace) -> StudySettings:
    """Settings that all cells share."""
    steps = args.max_steps or []
    rule = SearchRule(
        first_exponent=args.first_exponent,
        divergence=args.divergence,
        checks_per_epoch=args.checks_per_epoch,
        max_steps=steps[0] if len(steps) == 1 else None,
    )
    by_ratio = dict(zip(args.ratios, steps)) if len(steps) > 1 else {}
    return StudySettings(rule, by_ratio, args.max_iterations, device=args.device)


def describe(report) -> str:
    """One line on a running training."""
    if hasattr(report, 'gradient_norm'):
        score = report.last.get(CHOICE, 0.0)
        return (
            f'iteration {report.iterations}, objective {report.objective:.5g}, gradient '
            f'{report.gradient_norm:.1e}, P@5 {score:.2f}'
        )
    return (
        f'lr {report.lr:g}, step {report.steps}, objective '
        f'{report.last_objective:.5g}, P@5 {report.best.get(CHOICE, 0.0):.2f}'
    )


def write_report(results: dict, folder: Path) -> list[Path]:
    """Tables, and the figure as soon as it has a point."""
    files = write_study_tables(results, folder)
    if any(x['batch_ratio'] is not None for x in results.values()):
        files.append(plot_study(results, folder / 'precision_at_5.png'))
    return files


@show_user_errors(*(OSError, ValueError, TypeError, RuntimeError), on_interrupt=AGAIN)
def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    settings = settings_of(args)
    store = StudyRecord(args.out / 'results.csv')
    cells = list(study_cells(args.ratios, args.pointwise, args.modes, not args.no_full))
    missing = [x for x in cells if not store.find(x.key, settings.of(x))]
    with console.status('reading the data'):
        data = TwoTowerData(Config.fromfile(args.config))
        all_pairs = data.all_pairs()
    done = len(cells) - len(missing)
    console.print(
        f'{data.num_positives} pairs of {data.shape[0]} x '
        f'{data.shape[1]}; {done} of {len(cells)} cells are there.'
    )
    for cell in missing:
        done += 1
        title = f'[{done}/{len(cells)}] {cell.key}'
        with console.status(title) as status:

            def show(report, title=title, status=status):
                status.update(f'{title}: {describe(report)}')

            result = run_cell(cell, data, settings, store.results, all_pairs, show)
        store.add(result)
        found = result['last' if cell.full else 'best']
        how = (
            f'{result["iterations"]} iterations'
            if cell.full
            else f'lr {result["lr"]:g}, {result["steps"]} steps, {result["ended"]}'
        )
        console.print(
            f'{title}: P@5 {found.get(CHOICE, 0.0):.2f} ({how})', highlight=False, markup=False
        )
        write_report(store.results, args.out)
    for path in write_report(store.results, args.out):
        console.print(f'Wrote {path}', highlight=False)


if __name__ == '__main__':
    sys.exit(main())
