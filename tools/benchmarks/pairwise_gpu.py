"""The exact pairwise sum beside the GPU's own limits and the focal loss.

    python tools/benchmarks/pairwise_gpu.py
    python tools/benchmarks/pairwise_gpu.py --all
    python tools/benchmarks/pairwise_gpu.py --tune sizes.csv
    python tools/benchmarks/pairwise_gpu.py --anchors 20000 --device cpu

``--all`` first checks the Triton kernels: every kind of scores against the float64 pair matrix,
equal bits in every run, no waiting of the host, a CUDA graph on new scores, ``torch.compile``. It
then times them, and ends with "kernels verified on" and the device, or exit status 1. ``--tune``
times other launch sizes and writes the table.

What is timed, on the same logits, is

* a copy: the time to read the logits and write the gradients once,
* the pairwise sum forward + backward, with a given gradient of the sums,
* sigmoid focal loss forward + backward (mmcv's kernel, else torchvision's).

On a GPU each is timed twice: as Python calls it (the launches may be what is waited for) and
replayed from a CUDA graph (the kernels alone). How fast the sum is depends on how many logits lie
within reach of a positive, hence three kinds of scores: all of them (``random``), as a head starts
(``start``: every score near -4.6) and as it ends (``trained``: few above the lowest positive).
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
from memory_peak import peak_extra_memory
from rich.console import Console
from rich.table import Table

from mmrank.errors import UserError, show_user_errors
from mmrank.files import write_csv_atomically
from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.functional.pairwise.triton.sums import HAS_TRITON, SWITCH, LaunchSizes, is_supported

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.common.timing import in_turn
from research.pairwise_kernels.size_tuning import best_sizes, tune
from research.pairwise_kernels.verification import LIMITS, CheckResult, all_checks, captured

DTYPES = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}
# Mean and spread of the logits, then of the positives among them.
KINDS = {
    'random': ((-1.0, 1.0), (0.0, 1.0)),
    'start': ((-4.6, 0.1), (-4.6, 0.1)),
    'trained': ((-7.0, 1.5), (0.0, 1.5)),
}


def make_scores(kind, anchors, classes, positives, device, dtype):
    """Logits (anchors, classes) and positives (1, positives)."""
    g = torch.Generator(device).manual_seed(0)
    leaves = []
    for shape, (mean, spread) in zip(((anchors, classes), (1, positives)), KINDS[kind]):
        x = torch.randn(shape, generator=g, device=device)
        leaves.append((x * spread + mean).to(dtype).requires_grad_())
    return leaves


def make_focal(logits, labels, classes):
    """Forward + backward of the fastest sigmoid focal loss at hand."""
    try:
        from mmcv.ops import sigmoid_focal_loss

        def step():
            loss = sigmoid_focal_loss(logits, labels, 2.0, 0.25, None, 'sum')
            return torch.autograd.grad(loss, logits)

        step()
        return 'mmcv', step
    except (ImportError, RuntimeError, NotImplementedError):
        # Not installed, or built without kernels for this device or dtype.
        from torchvision.ops import sigmoid_focal_loss as plain

        hot = torch.nn.functional.one_hot(labels, classes + 1)[:, :classes]
        hot = hot.to(logits.dtype)

        def step():
            return torch.autograd.grad(plain(logits, hot, reduction='sum'), logits)

        return 'torchvision', step


def make_sum(pos, logits, tau, method):
    """Forward + backward of the pairwise sum over all logits."""
    weight = torch.ones(pos.shape, dtype=torch.float64, device=pos.device)

    def step():
        total = pairwise_surrogate_sum(pos, logits.view(1, -1), OneSidedHuber(tau), method=method)
        return total, *torch.autograd.grad(total, (pos, logits), weight)

    return step


def peak_memory(step, device):
    """Bytes beyond what was there before the step."""
    if device == 'cpu':
        return peak_extra_memory(lambda: step(), lambda: ())
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def largest_error(step, reference):
    """Relative to the largest entry, over the sums and both gradients."""
    return max(
        ((a.double() - b.double()).abs().max() / b.abs().max()).item()
        for a, b in zip(step(), reference())
    )


def measure(args, kind, dtype):
    """Milliseconds by name, MiB of memory and the largest error."""
    logits, pos = make_scores(kind, args.anchors, args.classes, args.positives, args.device, dtype)
    labels = torch.full((args.anchors,), args.classes, device=args.device)
    labels[:: max(args.anchors // args.positives, 1)] = 0
    step = make_sum(pos, logits, args.tau, args.method)
    source, focal = make_focal(logits, labels, args.classes)
    values, out = logits.detach(), torch.empty_like(logits)
    steps = {
        'copy': lambda: out.copy_(values),
        f'pairwise sum ({args.method})': step,
        f'focal loss ({source})': focal,
    }
    if args.device == 'cuda':
        steps |= {f'{name}, CUDA graph': captured(s)[0] for name, s in steps.items()}
    times = in_turn({k: (v, ()) for k, v in steps.items()}, args.repeats)
    found = {name: 1e3 * seconds for name, (seconds, _) in times.items()}
    peak = peak_memory(step, args.device) / 2**20
    reference = make_sum(pos, logits, args.tau, 'intervals')
    return found, peak, largest_error(step, reference)


def print_times(args, console):
    """Time every dtype and kind of scores; yield the errors found."""
    machine = args.device
    if machine == 'cuda':
        machine = torch.cuda.get_device_name()
    for dtype in args.dtypes:
        for kind in args.kinds:
            found, peak, error = measure(args, kind, DTYPES[dtype])
            table = Table(
                'forward + backward',
                'median ms',
                'x copy',
                'x focal loss',
                title=f'{kind} scores, {dtype}, {args.anchors} x '
                f'{args.classes} logits, {args.positives} positives, '
                f'{machine}',
            )
            for row, took in found.items():
                # Ratios are between steps that were run in the same way.
                same = [
                    other for name, other in found.items() if ('graph' in name) == ('graph' in row)
                ]
                table.add_row(row, f'{took:.3f}', f'{took / same[0]:.2f}', f'{took / same[-1]:.2f}')
            console.print(table)
            console.print(
                f'peak extra memory of the sum {peak:.0f} MiB; largest error '
                f'relative to the torch path {error:.1e}'
            )
            yield CheckResult(
                f'{kind} scores, {dtype}, {args.anchors * args.classes} of them, error',
                error,
                LIMITS[DTYPES[dtype]],
            )


def check_kernels_can_run(device):
    """Refuse what cannot run the kernels.

    Raises:
        UserError: Without triton, or without a GPU that it compiles for.
    """
    if not HAS_TRITON:
        raise UserError('triton is not installed; run: pip install triton')
    if device == 'cpu':
        if os.environ.get('TRITON_INTERPRET') != '1':
            raise UserError(
                'the kernels run on a GPU, and torch.cuda.is_available() is False or --device cpu '
                'was given; run this on a machine with an NVIDIA GPU. TRITON_INTERPRET=1 checks '
                'the same on the CPU at tiny sizes, which verifies no device'
            )
    elif not is_supported(torch.cuda.current_device()):
        raise UserError(
            'triton does not compile for this GPU; it needs compute '
            'capability 8.0 or higher and a C compiler (gcc or CC)'
        )


def verify(args, console):
    """Check and time the kernels.

    Returns:
        Exit status: 0 if every check holds.
    """
    start = time.monotonic()
    failed = []

    def judge(results):
        for result in results:
            word = '[green]ok[/]' if result.passed else '[red]FAILED[/]'
            console.print(f'{word} {result.name}: {result.found:.2g} (at most {result.limit:.2g})')
            failed.extend([] if result.passed else [result.name])

    judge(all_checks(args.device, args.positives, args.check_negatives))
    judge(print_times(args, console))
    console.print(f'{time.monotonic() - start:.0f} s')
    if failed:
        console.print(f'{len(failed)} checks failed: ' + '; '.join(failed))
        return 1
    if args.device == 'cpu':
        console.print("kernels agree in triton's interpreter, on no device")
        return 0
    console.print(
        f'kernels verified on {torch.cuda.get_device_name()}; '
        f'{SWITCH}=1 makes them part of method="auto"'
    )
    return 0


def write_tuning(args, console):
    """Time the candidates of the launch sizes and write their table."""
    logits, pos = make_scores(
        args.kinds[0],
        args.anchors,
        args.classes,
        args.positives,
        args.device,
        DTYPES[args.dtypes[0]],
    )
    lines = list(tune(pos.detach(), logits.detach().view(1, -1), args.tau, args.repeats))
    write_csv_atomically(
        [
            ['part', *LaunchSizes._fields, 'milliseconds', 'ratio'],
            *([x.part, *x.sizes, f'{x.milliseconds:.4f}', f'{x.ratio:.3f}'] for x in lines),
        ],
        args.tune,
    )
    console.print(f'{args.tune}: {len(lines)} candidates')
    console.print(
        f'fastest: {best_sizes(lines)}; SIZES in '
        'mmrank/functional/pairwise/triton/sums.py holds what is launched'
    )


@show_user_errors(OSError)
def main():
    """Time the pair sum, check the kernels, or tune them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--anchors', type=int, default=175_000)
    parser.add_argument('--classes', type=int, default=80)
    parser.add_argument('--positives', type=int, default=2000)
    parser.add_argument('--tau', type=float, default=1.0)
    parser.add_argument(
        '--method',
        choices=['auto', 'intervals', 'triton'],
        help='default: the kernels on a GPU, else the torch path',
    )
    parser.add_argument('--dtypes', nargs='+', choices=list(DTYPES), default=list(DTYPES)[:2])
    parser.add_argument('--kinds', nargs='+', choices=list(KINDS), default=list(KINDS))
    parser.add_argument('--repeats', type=int, default=30)
    parser.add_argument(
        '--device', choices=['cpu', 'cuda'], default='cuda' if torch.cuda.is_available() else 'cpu'
    )
    work = parser.add_mutually_exclusive_group()
    work.add_argument('--all', action='store_true', help='check the kernels, then time them')
    work.add_argument('--tune', metavar='CSV', help='time other launch sizes; the table')
    parser.add_argument(
        '--check-negatives',
        type=int,
        default=100_000,
        help='scores of a list beside the float64 pair matrix, with --all',
    )
    args = parser.parse_args()
    console = Console()
    if args.method is None:
        args.method = 'triton' if args.device == 'cuda' else 'intervals'
    if args.all or args.tune:
        check_kernels_can_run(args.device)
        args.method = 'triton'
    if args.tune:
        return write_tuning(args, console)
    if args.all:
        return verify(args, console)
    for _ in print_times(args, console):
        pass
    return 0


if __name__ == '__main__':
    sys.exit(main())
