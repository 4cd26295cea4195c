"""Every loss and metric compared with the floor of its work, and its best peer.

    python tools/benchmarks/floors.py
    python tools/benchmarks/floors.py --only CLIPLoss SogCLRLoss --size batch=4096
    python tools/benchmarks/floors.py --threads 1 --out work_dirs/floors
    python tools/benchmarks/floors.py --only DRLoss --memory --size rows=5000 classes=1203

The floor is work that no implementation can do without: one pass over the scores that reads them
twice and writes their gradient, or the bare matrix products of the embeddings. Peers are other
libraries, or a plain loss of the same shape. Losses are timed forward
and backward. Ratios are medians over turns; below 1 in "x peer" we are faster.

In place of the table --memory lists the peak of each row on the CPU, beyond what is there before,
the gradient included.
"""

import argparse
import statistics
import sys
from dataclasses import fields, replace

import torch
from rich.console import Console
from rich.progress import track

from lower_bounds.metrics import metric_rows
from lower_bounds.queries import query_rows
from lower_bounds.row import QUICK, Row, Sizes
from lower_bounds.scores import score_rows
from lower_bounds.views import pair_rows, view_rows
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.pictures.tables import console_table, write_table
from timing import Times, both_times_in_turn, machine, median_ratio, peak_extra_memory

HEADER = (
    *('loss or metric', 'work', 'floor'),
    *('floor, CPU ms', 'ours, CPU ms', 'x floor, CPU', 'x floor, wall'),
    *('peer', 'peer, CPU ms', 'x peer, CPU', 'x peer, wall'),
)


def size(text: str) -> tuple[str, int]:
    """NAME=VALUE of ``--size``."""
    name, _, value = text.partition('=')
    known = [x.name for x in fields(Sizes) if x.name != 'device']
    if name not in known or not value.isdecimal() or not int(value):
        raise argparse.ArgumentTypeError(
            f'{text!r} is not NAME=VALUE with a number from 1 on and a NAME of {", ".join(known)}'
        )
    return name, int(value)


def parse_args(arguments=None) -> argparse.Namespace:
    known = [f'{x.name}={x.default}' for x in fields(Sizes) if x.name != 'device']
    parser = tool_parser(
        __doc__,
        threads=1,
        repeats=5,
        quick=(False, 'tiny sizes, to try it out'),
        memory=(False, 'show peaks of memory instead of timing'),
        device='cpu',
    )
    add = parser.add_argument
    add('--only', nargs='+', metavar='NAME', help='registered names')
    add('--size', nargs='+', type=size, default=[], metavar='NAME=VALUE', help=', '.join(known))
    add('--out', metavar='STEM', help='also write STEM.md and STEM.csv')
    args = parse_at_least(parser, arguments, threads=1, repeats=1)
    if args.out and args.memory:
        parser.error('--memory writes no files; leave --out out')
    return args


def all_rows(sizes: Sizes) -> list[Row]:
    kinds = score_rows, query_rows, view_rows, pair_rows, metric_rows
    return [row for rows_of in kinds for row in rows_of(sizes)]


def chosen_rows(rows: list[Row], only: list[str] | None) -> list[Row]:
    if only is None:
        return rows
    known = sorted({row.name for row in rows})
    unknown = sorted({*only} - {*known})
    if unknown:
        what = f'--only {" ".join(unknown)}: there is no such loss or metric'
        raise UserError(what, f'use some of {", ".join(known)}')
    return [row for row in rows if row.name in only]


def measure(row: Row, repeats: int) -> list[list]:
    """Lines of the table: one for each peer, at least one."""
    sides = row.prepare()
    steps = {'floor': sides.floor, 'ours': sides.ours, **sides.peers}
    times = both_times_in_turn(steps, repeats)
    floor = times['floor']
    ours = times['ours']
    name = row.name + (f' ({row.setting})' if row.setting else '')
    head = [
        *(name, row.work, row.floor),
        *(1e3 * statistics.median(x.cpu) for x in (floor, ours)),
        *_ratios(ours, floor),
    ]
    lines = [
        [*head, peer, 1e3 * statistics.median(times[peer].cpu), *_ratios(ours, times[peer])]
        for peer in sides.peers
    ]
    return lines or [[*head, '', '', '', '']]


def _ratios(own: Times, other: Times) -> list[float]:
    return [median_ratio(own.cpu, other.cpu), median_ratio(own.wall, other.wall)]


def shown(line: list) -> list[str]:
    """Cells of a line for the console, without what the floor is."""
    name, work, _, *values = [f'{x:.3g}' if isinstance(x, float) else x for x in line]
    floor, ours, cpu, wall, peer, theirs, peer_cpu, peer_wall = values
    beside = f'{peer_cpu}, {peer_wall}' if peer else ''
    return [name, work, floor, ours, f'{cpu}, {wall}', peer, theirs, beside]


@show_user_errors(OSError)
def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    sizes = QUICK if args.quick else Sizes()
    sizes = replace(sizes, device=args.device, **dict(args.size))
    rows = chosen_rows(all_rows(sizes), args.only)
    # A pipe has no width; 80 columns would break every cell.
    console = Console(width=None if sys.stdout.isatty() else 130)
    if args.memory:
        peaks = [
            (f'{x.name} {x.setting}', x.work, peak_extra_memory(x.prepare().ours, tuple) / 1e6)
            for x in rows
        ]
        cells = [[*words, f'{peak:.2f}'] for *words, peak in peaks]
        console.print(console_table(['loss or metric', 'work', 'peak, MB'], cells))
        return
    progress = Console(stderr=True)
    title = (
        f'{args.threads} threads, {args.device}, torch {torch.__version__}, {machine()}, '
        f'medians of {args.repeats} turns'
    )
    lines = []
    for row in track(rows, 'measuring', console=progress, transient=True):
        progress.print(f'{row.name} {row.setting}', style='dim')
        lines += measure(row, args.repeats)
        if args.out:
            # After every row: what is measured outlives an interruption.
            head = 'Losses and metrics beside their floors'
            write_table(HEADER, lines, args.out, head, title, align='lllrrrrlrrr')
    header = ['loss or metric', 'work', 'floor', 'ours', 'x floor', 'peer', 'peer, ms', 'x peer']
    caption = 'CPU ms; ratios of CPU time, then of wall time'
    console.print(console_table(header, map(shown, lines), title=title, caption=caption))


if __name__ == '__main__':
    sys.exit(main())
