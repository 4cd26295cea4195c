"""Tables and figures of the papers: what makes each of them here.

    python tools/research/paper_table.py --list
    python tools/research/paper_table.py soprc/figure5
    python tools/research/paper_table.py soprc/figure5 -- --trials 50

--list names each with its state and estimated GPU hours. A name runs what can be run here (options
after -- go to the first command), or says what is needed; --explain runs nothing.

exit status: the first failing command's; 0 run, listed or explained; 2 wrong input; 3 not
run, since it takes more than this machine has been given.
"""

import argparse
import glob
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError, show_user_errors
from paper_tables import GPU, RUNNABLE, STATES, TABLES, PaperTable, table_named

ROOT = Path(__file__).resolve().parents[2]


def parse_args() -> argparse.Namespace:
    parser = tool_parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--list', action='store_true', help='show all')
    what.add_argument('name', nargs='?', help='such as soprc/figure5')
    parser.add_argument('--explain', action='store_true', help='only say what NAME takes')
    parser.add_argument('options', nargs='*', help='after --: passed to the first command')
    return parser.parse_args()


def show_all(console: Console) -> None:
    """Print the list and what the states mean."""
    table = Table()
    for column in ('name', 'state', 'shows', 'needs', 'GPU h', 'note'):
        table.add_column(column, overflow='fold')
    for entry in TABLES:
        hours = f'{entry.gpu_hours:.2g}' if entry.trainings else ''
        if entry.gpu_hours >= 100:
            hours = f'{entry.gpu_hours:.0f}'
        table.add_row(*(entry.name, entry.state, entry.title, entry.needs), *(hours, entry.note))
    console.print(table)
    for state, meaning in STATES.items():
        count = sum(entry.state == state for entry in TABLES)
        console.print(f'{state}: {count}, {meaning}')
    console.print(
        f'GPU h: estimate for the published size on one {GPU}, without reading images and tests.'
    )


def explain(entry: PaperTable, console: Console) -> None:
    """Print what there is to say of one."""
    say = console.print
    say(f'{entry.name}: {entry.title}')
    say(f'state: {entry.state}, {STATES[entry.state]}')
    for name in ('needs', 'note', 'results'):
        if getattr(entry, name):
            say(f'{name}: {getattr(entry, name)}')
    if entry.trainings:
        say(f'published size: {entry.gpu_hours:.2g} GPU hours, an estimate for one {GPU}:')
        for training in entry.trainings:
            say(f'  {training}', highlight=False)
    for command in entry.commands:
        say(f'command: python {command}', soft_wrap=True, highlight=False)


def expand(word: str) -> str:
    """Replace the file of a word that has ``*`` by the one that matches."""
    if '*' not in word or '/' not in word:
        return word
    start = max(word.rfind(','), word.rfind('=')) + 1
    found = sorted(glob.glob(word[start:], root_dir=ROOT))
    if len(found) != 1:
        raise UserError(
            f'{word[start:]!r} matches {len(found)} files, {found[:3]}; one is required. Fix: '
            'remove what earlier versions of the plan have left there'
        )
    return word[:start] + found[0]


def run(entry: PaperTable, options: list[str], console: Console) -> int:
    """Run the commands until one fails; return its status, or 0."""
    for number, command in enumerate(entry.commands):
        words = [expand(word) for word in shlex.split(command)]
        words = [sys.executable, *words, *(options if not number else ())]
        start = time.monotonic()
        status = subprocess.run(words, cwd=ROOT, check=False).returncode
        seconds = time.monotonic() - start
        console.print(
            f'{entry.name}, command {number + 1} of {len(entry.commands)}: '
            f'status {status} after {seconds:.0f} s'
        )
        if status:
            return status
    return 0


@show_user_errors()
def main() -> int:
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
    if args.explain:
        return 0
    if entry.state not in RUNNABLE:
        return 3
    return run(entry, args.options, console)


if __name__ == '__main__':
    sys.exit(main())
