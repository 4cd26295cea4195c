r"""Tables and figures of the papers: what makes each of them here.

    python tools/benchmarks/paper_table.py --list
    python tools/benchmarks/paper_table.py soprc/figure5

--list names every table and figure of the four papers with its state. With a
name, what can be run on small data or as published is run; for the rest the
command says what is needed. Options after -- are passed on:

    python tools/benchmarks/paper_table.py soprc/figure5 -- --trials 50

exit status: that of the command; 0 listed; 2 unknown name (see the message);
3 not run, since it takes more than this machine has been given.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mmrank.errors import UserError, show_user_errors
from mmrank.studies.paper_tables import (
    STATES,
    TABLES,
    PaperTable,
    table_named,
)

ROOT = Path(__file__).resolve().parents[2]


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--list', action='store_true', help='show all')
    what.add_argument('name', nargs='?', help='such as soprc/figure5')
    parser.add_argument(
        'options', nargs='*', help='after --: passed to the command'
    )
    return parser.parse_args()


def show_all(console: Console) -> None:
    """Print the list and what the states mean."""
    table = Table()
    for column in ('name', 'state', 'shows', 'needs', 'note'):
        table.add_column(column, overflow='fold')
    for entry in TABLES:
        table.add_row(
            entry.name, entry.state, entry.title, entry.needs, entry.note
        )
    console.print(table)
    for state, meaning in STATES.items():
        count = sum(entry.state == state for entry in TABLES)
        console.print(f'{state}: {count}, {meaning}')


def explain(entry: PaperTable, console: Console) -> None:
    """Print what there is to say of one."""
    console.print(f'{entry.name}: {entry.title}')
    console.print(f'state: {entry.state}, {STATES[entry.state]}')
    for name, value in (('needs', entry.needs), ('note', entry.note)):
        if value:
            console.print(f'{name}: {value}')
    if entry.command:
        console.print(f'command: python {entry.command}', soft_wrap=True)


@show_user_errors()
def main() -> int:
    """List, run or explain."""
    args = parse_args()
    console = Console()
    if args.list:
        show_all(console)
        return 0
    try:
        entry = table_named(args.name)
    except KeyError:
        raise UserError(
            f'{args.name!r} is no table or figure here. Fix: a name that '
            '--list shows, such as soprc/figure5'
        ) from None
    explain(entry, console)
    if entry.state not in ('here', 'small'):
        return 3
    command = [sys.executable, *shlex.split(entry.command), *args.options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == '__main__':
    sys.exit(main())
