"""Tables 5 and 6 of "in-batch bias of two-tower models", by one command.

    python tools/research/in_batch_table.py tools/research/in_batch.yaml

A cell of the plan has ``mode`` and ``pointwise`` of the loss, and ``batch_ratio``: the paper's
search for a learning rate, then training until no metric improves for 10 epochs; with ``full`` the
same objective by L-BFGS on all pairs. Finished cells are kept in OUT/results.csv, from which the
command resumes. The paper's limits take days: ``max_steps`` of a batch ratio ends a training
earlier, ``first_exponent`` (the first learning rate is 2 to this), ``divergence`` (a learning rate
is given up when the objective is above so many times its first value), ``patience`` (epochs without
a better metric), ``checks_per_epoch``, ``max_iterations`` and ``tolerance`` (L-BFGS) too.
"""

from mmrank.interruption import AGAIN, end_on_signals

if __name__ == '__main__':
    end_on_signals(AGAIN)  # the imports below take seconds
import json
import sys
from pathlib import Path

import torch
from mmengine.config import Config
from rich.console import Console

from in_batch.plots import plot_study, write_study_tables
from in_batch.study import CHOICE, run_cell
from in_batch.training import TwoTowerData
from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import show_user_errors
from training_plan import Record, TrainingPlan

COLUMNS = ('method', 'seed', 'settings', 'result')


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


def results_of(record: Record) -> dict[str, dict]:
    """What each finished cell has found, by its name."""
    return {row['method']: json.loads(row['result']) for row in record.rows}


def write_report(results: dict, folder: Path) -> list[Path]:
    """Tables, and the figure as soon as it has a point."""
    files = write_study_tables(results, folder)
    if any(x['batch_ratio'] is not None for x in results.values()):
        files.append(plot_study(results, folder / 'precision_at_5.png'))
    return files


@show_user_errors(*(OSError, ValueError, TypeError, RuntimeError), on_interrupt=AGAIN)
def main() -> None:
    threads = (torch.get_num_threads(), 'CPU threads')
    parser = tool_parser(__doc__, device='cpu', threads=threads)
    parser.add_argument('plan', type=Path, metavar='PLAN', help='.yaml file, data: a config')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/in_batch_table'))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    plan = TrainingPlan(args.plan)
    ((name, config),) = plan.data.items()
    record = Record(args.out / 'results.csv', COLUMNS)
    missing = list(plan.missing(name, record))
    with console.status('reading the data'):
        data = TwoTowerData(Config.fromfile(config))
        all_pairs = data.all_pairs()
    console.print(
        f'{data.num_positives} pairs of {data.shape[0]} x {data.shape[1]}; {len(record.rows)} '
        f'cells are there, {len(missing)} are missing.'
    )
    for number, (facts, cell) in enumerate(missing, 1):
        title = f'[{number}/{len(missing)}] {facts["method"]}'
        before = results_of(record).values()
        with console.status(title) as status:

            def show(report, title=title, status=status):
                status.update(f'{title}: {describe(report)}')

            result = run_cell(cell, data, before, all_pairs, facts['seed'], args.device, show)
        record.add([dict(facts, result=json.dumps(result))])
        found = result['last' if result['full'] else 'best']
        how = (
            f'{result["iterations"]} iterations'
            if result['full']
            else f'lr {result["lr"]:g}, {result["steps"]} steps, {result["ended"]}'
        )
        console.print(
            f'{title}: P@5 {found.get(CHOICE, 0.0):.2f} ({how})', highlight=False, markup=False
        )
        write_report(results_of(record), args.out)
    for path in write_report(results_of(record), args.out):
        console.print(f'Wrote {path}', highlight=False)


if __name__ == '__main__':
    sys.exit(main())
