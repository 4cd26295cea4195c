"""What the Triton kernels of the pair sum take, found without a GPU.

    python tools/benchmarks/kernel_report.py
    python tools/benchmarks/kernel_report.py --parts resources --dtypes bf16 python
    tools/benchmarks/kernel_report.py --parts traffic --positives 200

* ``resources``: registers, spills and shared memory of each kernel, from the assembler of each
  architecture, and the warps of a multiprocessor, of 64, that fit its registers.
* ``launches``: the launches of a forward and backward pass; which operators
  of torch move the scores, or copy between host and device.
* ``traffic``: bytes that go through the memory of the device, counted in triton's interpreter. The
  floor reads each score twice and writes its gradient. The tables do not depend on the number of
  scores: their share is that of ``--scores``, which are more than the interpreter runs.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table

from mmrank.errors import UserError, show_user_errors
from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.functional.pairwise.triton import sums

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PARTS = ('resources', 'launches', 'traffic')
ARCHITECTURES = (80, 90, 100)
FORMATS = ('fp32', 'bf16', 'fp16', 'fp64')
DTYPES = dict(zip(FORMATS, (torch.float32, torch.bfloat16, torch.float16, torch.float64)))
# In the interpreter. Programs are so small that all copies of the sums are used, as they are by
# millions of scores.
COUNTED = 2**15
SMALL = sums.LaunchSizes(block=256, tiles=4)


def print_resources(args, console):
    """Registers, spills and shared memory, kernel by kernel."""
    from research.pairwise_kernels import assembly

    for form in assembly.FORMATS:
        if form.scores not in args.dtypes:
            continue
        table = Table('kernel', title=f'{form.scores} scores')
        for architecture in args.architectures:
            table.add_column(f'sm_{architecture}', justify='right')
        for kernel in assembly.KERNELS:
            cells = []
            for architecture in args.architectures:
                code = assembly.compile_kernel(kernel, form, architecture)
                found = assembly.resources_of(code, architecture)
                cells.append(
                    f'{found.registers} registers, {found.spill_stores + found.spill_loads} B '
                    f'spilled, {found.shared} B shared, {found.warps_per_processor()} warps'
                )
            table.add_row(kernel.__name__, *cells)
        console.print(table)


def print_launches(args, console):
    """Launches and operators of one step."""
    from research.pairwise_kernels.dry_run import dry_run

    def step():
        leaves = (
            torch.empty(1, n, device='meta', requires_grad=True)
            for n in (args.positives, args.scores)
        )
        pos, neg = leaves
        total = pairwise_surrogate_sum(pos, neg, OneSidedHuber(1.0), method='triton')
        torch.autograd.grad(total.sum(), (pos, neg))

    run = dry_run(step)
    for launch in run.launches:
        console.print(f'{launch.kernel}: {launch.grid} programs')
    passes = run.passes_over(args.scores)
    copies = run.copies_between_devices()
    console.print(
        f'{len(run.launches)} launches of triton and 1 that clears the sums; operators of torch '
        f'that move the scores: {len(passes)}; copies between host and device: {len(copies)}'
    )


def print_traffic(args, console):
    """Bytes for each score, beside the floor."""
    from research.pairwise_kernels.memory_traffic import step_traffic

    table = Table(
        'dtype',
        'floor',
        'scores and gradient',
        'tables',
        'x floor',
        'asked of caches',
        title=f'bytes for each of {args.scores:,} scores, {args.positives} positives',
    )
    for name in args.dtypes:
        torch.manual_seed(0)
        pos = torch.randn(1, args.positives).to(DTYPES[name])
        neg = (torch.randn(1, COUNTED) - 1).to(DTYPES[name])
        with mock.patch.object(sums, 'SIZES', SMALL):
            found = step_traffic(pos, neg, 1.0)
        streams = found.per_score(streams=True)
        tables = found.per_score(streams=False) * COUNTED / args.scores
        floor = found.floor / found.scores
        table.add_row(
            name,
            f'{floor:.0f}',
            f'{streams:.2f}',
            f'{tables:.2f}',
            f'{(streams + tables) / floor:.3f}',
            f'{found.asked_per_score():.0f}',
        )
    console.print(table)


@show_user_errors()
def main():
    """Print the parts that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--dtypes', nargs='+', choices=FORMATS, default=['fp32', 'bf16'])
    parser.add_argument('--architectures', nargs='+', type=int, default=list(ARCHITECTURES))
    parser.add_argument('--positives', type=int, default=500)
    parser.add_argument('--scores', type=int, default=3_500_000)
    args = parser.parse_args()
    if not sums.HAS_TRITON:
        raise UserError('triton is not installed; run: pip install triton')
    # The interpreter is chosen when triton is imported, once for a process.
    interprets = os.environ.get('TRITON_INTERPRET') == '1'
    console = Console()
    if 'resources' in args.parts and not interprets:
        print_resources(args, console)
    if 'launches' in args.parts and not interprets:
        print_launches(args, console)
    if 'traffic' in args.parts and interprets:
        print_traffic(args, console)
    elif 'traffic' in args.parts:
        return subprocess.run(
            [
                *(sys.executable, __file__, '--parts', 'traffic'),
                *('--dtypes', *args.dtypes),
                *('--positives', str(args.positives)),
                *('--scores', str(args.scores)),
            ],
            env=dict(os.environ, TRITON_INTERPRET='1'),
        ).returncode
    return 0


if __name__ == '__main__':
    sys.exit(main())
