"""Tables and figures of the four papers, each by one command, at two sizes.

    python tools/research/paper_table.py --list
    python tools/research/paper_table.py soprc/table1
    python tools/research/paper_table.py soprc/table1 --size published

``small`` has the losses and the rule of tuning of the paper on data that are small or made up, ten
CPU minutes at most; ``published`` has the data, schedule, batches and seeds that the paper prints.
NAME trains and tests what its plan says, draws its figures, and writes the table, with what the
paper prints in parentheses, to work_dirs/papers. The same command again goes on where it was ended.
--all makes all, and writes report.md with a sheet of pictures for each paper.
papers/*.yaml have the names, papers/*/*.yaml the plans.

GPU hours are an estimate: ``images x GMAC of a forward pass / GMAC a second``. The denominator is
the speed of a published training with its backward passes: ResNet-50 at 224 x 224, TF32, 938
images/s on one A100 of 80 GB (NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, README,
"Training performance", 21.03 container). Not in it: reading images, tests, and the loss, below 10 %
of a step (stable AP, table 3). The GPUs of the papers are slower, up to 2.8 times the estimate.

exit status: the first failing command's; 0 run, listed or explained; 2 wrong input; 3 not
run, since data are missing.
"""

import sys

from rich.console import Console
from rich.table import Table

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from papers.report import make_all
from papers.tables import GPU, SIZES, TABLES, PaperTable, make, makers_of, missing, steps_of


def state_of(entry: PaperTable, size: str) -> str:
    """Short state of a table at a size, for the list."""
    sets = getattr(entry, size)
    if not entry.shows_results:
        return 'shows no result'
    if not sets:
        return '-'
    needed = {name for key in sets for name in entry.data.get(key, ())}
    absent = sorted(name for name in needed if missing([name]))
    return f'needs {", ".join(absent)}' if absent else 'runs'


def show_all(console: Console) -> None:
    """Print the list."""
    table = Table()
    for column in ('name', 'shows', 'plan', *SIZES, 'GPU h'):
        table.add_column(column, overflow='fold')
    for entry in TABLES.values():
        hours = f'{sum(entry.gpu_hours.values()):.2g}' if entry.gpu_hours else ''
        plan = entry.plan.removeprefix('tools/research/')
        states = [state_of(entry, size) for size in SIZES]
        table.add_row(entry.name, entry.title, plan, *states, hours)
    console.print(table)
    console.print(
        f'GPU h: estimate for the published size on one {GPU}, without reading images and tests.'
    )


def explain(entry: PaperTable, size: str, console: Console) -> None:
    """Print what there is to say of one."""
    lines = [f'{entry.name}: {entry.title}']
    for name in ('note', 'results'):
        if getattr(entry, name):
            lines.append(f'{name}: {getattr(entry, name)}')
    if hours := entry.gpu_hours:
        total = sum(hours.values())
        lines.append(f'published size: {total:.2g} GPU hours, an estimate for one {GPU}:')
    lines += [f'  {text}: {value:.2g} h' for text, value in hours.items()]
    for set_name in getattr(entry, size):
        data = entry.data.get(set_name, ())
        lines += [f'{set_name}: missing: {text}' for text in missing(data)]
        steps = [*makers_of(data), *steps_of(entry, size, set_name)]
        lines += [f'{set_name}: python {step}' for step in steps]
    if not entry.shows_results:
        lines.append('It shows no result: there is nothing to run.')
    console.print('\n'.join(lines), soft_wrap=True, highlight=False)


@show_user_errors()
def main() -> int:
    parser = tool_parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--list', action='store_true', help='show all')
    what.add_argument('--all', action='store_true', help='run all, and write a report')
    what.add_argument('name', nargs='?', help='such as soprc/figure5')
    parser.add_argument('--size', choices=SIZES, default='small', help='default: small')
    parser.add_argument('--explain', action='store_true', help='only say what NAME takes')
    parser.add_argument('options', nargs='*', help='after --: passed to the first command')
    args = parser.parse_args()
    console = Console()
    if args.list:
        show_all(console)
        return 0
    if args.all:
        return make_all(args.size, console)
    if args.name not in TABLES:
        raise UserError(
            f'{args.name!r} is no table or figure here. Fix: a name that --list shows, such as '
            'soprc/figure5'
        )
    entry = TABLES[args.name]
    explain(entry, args.size, console)
    if args.explain or not entry.shows_results:
        return 0
    return make(entry, args.size, args.options, console)['status']


if __name__ == '__main__':
    sys.exit(main())
