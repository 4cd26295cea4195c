"""The exact pairwise sum beside the GPU's own limits and the focal loss.

    python tools/benchmarks/pairwise_gpu.py
    python tools/benchmarks/pairwise_gpu.py --anchors 20000 --device cpu

What is timed, on the same logits, is

* a copy: the time to read the logits and write the gradients once,
* the pairwise sum forward + backward, with a given gradient of the sums,
* sigmoid focal loss forward + backward (mmcv's kernel, else torchvision's).

On a GPU each is timed twice: as Python calls it (the launches may be what is
waited for) and replayed from a CUDA graph (the kernels alone). How fast the
sum is depends on how many logits lie within reach of a positive, hence three
kinds of scores: all of them (``random``), as a head starts (``start``: every
score near -4.6) and as it ends (``trained``: few above the lowest positive).
"""

import argparse

import torch
from memory_peak import peak_extra_memory
from rich.console import Console
from rich.table import Table

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.studies.common.timing import in_turn

DTYPES = {
    'float32': torch.float32,
    'bfloat16': torch.bfloat16,
    'float16': torch.float16,
}
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
    for shape, (mean, spread) in zip(
        ((anchors, classes), (1, positives)), KINDS[kind]
    ):
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
            return torch.autograd.grad(
                plain(logits, hot, reduction='sum'), logits
            )

        return 'torchvision', step


def make_sum(pos, logits, tau, method):
    """Forward + backward of the pairwise sum over all logits."""
    weight = torch.ones(pos.shape, dtype=torch.float64, device=pos.device)

    def step():
        total = pairwise_surrogate_sum(
            pos, logits.view(1, -1), OneSidedHuber(tau), method=method
        )
        return total, *torch.autograd.grad(total, (pos, logits), weight)

    return step


def captured(step):
    """The step as one replay of a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


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
    """Milliseconds by name, and a line on memory and error."""
    logits, pos = make_scores(
        kind, args.anchors, args.classes, args.positives, args.device, dtype
    )
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
        steps |= {
            f'{name}, CUDA graph': captured(s) for name, s in steps.items()
        }
    times = in_turn({k: (v, ()) for k, v in steps.items()}, args.repeats)
    found = {name: 1e3 * seconds for name, (seconds, _) in times.items()}
    peak = peak_memory(step, args.device) / 2**20
    reference = make_sum(pos, logits, args.tau, 'intervals')
    error = largest_error(step, reference)
    notes = (
        f'peak extra memory of the sum {peak:.0f} MiB; largest error '
        f'relative to the torch path {error:.1e}'
    )
    return found, notes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--anchors', type=int, default=175_000)
    parser.add_argument('--classes', type=int, default=80)
    parser.add_argument('--positives', type=int, default=2000)
    parser.add_argument('--tau', type=float, default=1.0)
    parser.add_argument(
        '--method', choices=['auto', 'intervals', 'triton'], default='auto'
    )
    parser.add_argument(
        '--dtypes', nargs='+', choices=list(DTYPES), default=list(DTYPES)[:2]
    )
    parser.add_argument(
        '--kinds', nargs='+', choices=list(KINDS), default=list(KINDS)
    )
    parser.add_argument('--repeats', type=int, default=30)
    parser.add_argument(
        '--device',
        choices=['cpu', 'cuda'],
        default='cuda' if torch.cuda.is_available() else 'cpu',
    )
    args = parser.parse_args()
    console = Console()
    machine = args.device
    if machine == 'cuda':
        machine = torch.cuda.get_device_name()
    for dtype in args.dtypes:
        for kind in args.kinds:
            found, notes = measure(args, kind, DTYPES[dtype])
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
                    other
                    for name, other in found.items()
                    if ('graph' in name) == ('graph' in row)
                ]
                table.add_row(
                    row,
                    f'{took:.3f}',
                    f'{took / same[0]:.2f}',
                    f'{took / same[-1]:.2f}',
                )
            console.print(table)
            console.print(notes)


if __name__ == '__main__':
    main()
