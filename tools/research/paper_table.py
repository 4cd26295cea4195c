"""Tables and figures of the papers: what makes each of them here.

    python tools/research/paper_table.py --list
    python tools/research/paper_table.py soprc/figure5
    python tools/research/paper_table.py soprc/figure5 -- --trials 50

--list names each with its state and estimated GPU hours. A name runs what can be run here (options
after -- go to the first command), or says what is needed; --explain runs nothing. paper_tables.yaml
has them.

GPU hours are an estimate: ``images x GMAC of a forward pass / GMAC a second``. The denominator is
the speed of a published training with its backward passes: ResNet-50 at 224 x 224, TF32, 938
images/s on one A100 of 80 GB (NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, README,
"Training performance", 21.03 container). Not in it: reading images, tests, and the loss, below 10 %
of a step (stable AP, table 3). The GPUs of the papers are slower, up to 2.8 times the estimate.

exit status: the first failing command's; 0 run, listed or explained; 2 wrong input; 3 not
run, since it takes more than this machine has been given.
"""

import glob
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from rich.console import Console
from rich.table import Table

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError, show_user_errors

ROOT = Path(__file__).resolve().parents[2]
#: States of a table, and how they are shown.
STATES = {
    'here': 'run here as published, to its end, by the command',
    'small': 'run here on small data, to its end, by the command',
    'ready': 'the command runs it on small data; not run to its end here yet',
    'data': 'runnable with the named data and GPU hours; not run here',
    'out': 'left out: it shows no result',
}
#: States in which the tool runs the commands.
RUNNABLE = ('here', 'small', 'ready')
GPU = 'A100 80 GB, TF32'


class PaperTable(NamedTuple):
    """A table or figure of a paper."""

    name: str  # ``paper/table2``, or ``paper/table2@data`` for a further way to make it
    title: str  # What it shows
    state: str  # One of :data:`STATES`
    # The commands that make it, one after the other, with ``python`` left out; with state ``data``
    # the first of the trainings that it takes. A word with ``*`` stands for the one file that it
    # matches then.
    commands: Sequence[str] = ()
    needs: str = ''  # Data that has to be there
    note: str = ''  # How it differs from the paper, or why it is not there
    results: str = ''  # File of this repository with what came out, where it was run
    # At the published size on one GPU, an estimate: hours, and the trainings that it is the sum of
    gpu_hours: float = 0.0
    trainings: Sequence[str] = ()


FILE = Path(__file__).with_name('paper_tables.yaml')
TABLES = {row['name']: PaperTable(**row) for row in yaml.safe_load(FILE.read_text('utf-8'))}


def show_all(console: Console) -> None:
    """Print the list and what the states mean."""
    table = Table()
    for column in ('name', 'state', 'shows', 'needs', 'GPU h', 'note'):
        table.add_column(column, overflow='fold')
    for entry in TABLES.values():
        hours = f'{entry.gpu_hours:.0f}' if entry.gpu_hours >= 100 else f'{entry.gpu_hours:.2g}'
        hours = hours if entry.trainings else ''
        table.add_row(entry.name, entry.state, entry.title, entry.needs, hours, entry.note)
    console.print(table)
    for state, meaning in STATES.items():
        count = sum(entry.state == state for entry in TABLES.values())
        console.print(f'{state}: {count}, {meaning}')
    console.print(
        f'GPU h: estimate for the published size on one {GPU}, without reading images and tests.'
    )


def explain(entry: PaperTable, console: Console) -> None:
    """Print what there is to say of one."""
    lines = [f'{entry.name}: {entry.title}', f'state: {entry.state}, {STATES[entry.state]}']
    for name in ('needs', 'note', 'results'):
        if getattr(entry, name):
            lines.append(f'{name}: {getattr(entry, name)}')
    if entry.trainings:
        lines.append(f'published size: {entry.gpu_hours:.2g} GPU hours, an estimate for one {GPU}:')
    lines += [f'  {training}' for training in entry.trainings]
    lines += [f'command: python {command}' for command in entry.commands]
    console.print('\n'.join(lines), soft_wrap=True, highlight=False)


def expand(word: str) -> str:
    """Replace the file of a word that has ``*`` by the one that matches."""
    if '*' not in word:
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
    for number, command in enumerate(entry.commands, 1):
        words = [expand(word) for word in shlex.split(command)]
        words = [sys.executable, *words, *(options if number == 1 else ())]
        start = time.monotonic()
        status = subprocess.run(words, cwd=ROOT, check=False).returncode
        console.print(
            f'{entry.name}, command {number} of {len(entry.commands)}: '
            f'status {status} after {time.monotonic() - start:.0f} s'
        )
        if status:
            return status
    return 0


@show_user_errors()
def main() -> int:
    parser = tool_parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--list', action='store_true', help='show all')
    what.add_argument('name', nargs='?', help='such as soprc/figure5')
    parser.add_argument('--explain', action='store_true', help='only say what NAME takes')
    parser.add_argument('options', nargs='*', help='after --: passed to the first command')
    args = parser.parse_args()
    console = Console()
    if args.list:
        show_all(console)
        return 0
    if args.name not in TABLES:
        raise UserError(
            f'{args.name!r} is no table or figure here. Fix: a name that --list shows, such as '
            'soprc/figure5'
        )
    entry = TABLES[args.name]
    explain(entry, console)
    if args.explain:
        return 0
    return run(entry, args.options, console) if entry.state in RUNNABLE else 3


if __name__ == '__main__':
    sys.exit(main())
