"""Time and memory of the exact retrieval figures, compared with the bare products.

    python tools/benchmarks/retrieval_speed.py
    python tools/benchmarks/retrieval_speed.py --class-size 200
    python tools/benchmarks/retrieval_speed.py --samples 60502 --queries 1024

The bare side multiplies the same blocks of random queries with the gallery into a buffer, in turn
with ours. Peak memory is for the whole process, embeddings included.
"""

import resource
import statistics
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from mmrank.functional import retrieval_metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import benchmark_parser
from lib.common.timing import both_times_in_turn, median_ratio

# Queries of a block of the bare products: as many as the metric takes.
BLOCK = 512


def make_set(samples, dimensions, class_size, spread, device):
    """Embeddings and labels, classes of about one size."""
    g = torch.Generator().manual_seed(0)
    classes = max(samples // class_size, 1)
    labels = torch.randint(classes, (samples,), generator=g)
    x = torch.randn(samples, dimensions, generator=g).mul_(spread)
    means = torch.randn(classes, dimensions, generator=g)
    for part, of_class in zip(x.split(4096), labels.split(4096)):
        part.add_(means[of_class])
    return torch.nn.functional.normalize(x).to(device), labels.to(device)


def bare_products(queries, gallery):
    buffer = gallery.new_empty(BLOCK, gallery.size(0))
    for part in queries.split(BLOCK):
        torch.mm(part, gallery.T, out=buffer[: part.size(0)])


def main():
    parser = benchmark_parser(
        __doc__,
        samples=20_000,
        dimensions=512,
        class_size=(5, 'mean samples per class (SOP: 5)'),
        spread=(2.0, 'noise around the class means; more makes retrieval harder'),
        repeats=3,
        threads=2,
        memory_limit=2**30,
        device='cpu',
    )
    parser.add_argument(
        '--queries', type=int, help='only so many search, to extrapolate from (default: all)'
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    x, labels = make_set(args.samples, args.dimensions, args.class_size, args.spread, args.device)

    figures = {}

    sets, queries = (x, labels), x
    if args.queries is not None:
        queries = x[: args.queries]
        sets = queries, labels[: args.queries], x, labels

    def metric(name, **options):
        figures[name] = retrieval_metrics(*sets, memory_limit=args.memory_limit, **options)

    def recall(name):
        metric(name, recall_only=True)

    steps = {
        'bare products': (bare_products, (queries, x)),
        'all figures': (metric, ('all figures',)),
        'Recall@K alone': (recall, ('Recall@K alone',)),
    }
    times = both_times_in_turn(steps, args.repeats)
    bare = times['bare products']

    table = Table(
        *('side', 'CPU s, median', 'x products, CPU', 'x products, wall'),
        title=f'{len(queries)} x {args.samples} x {args.dimensions} float32, classes of '
        f'{args.class_size}, {args.device}, {args.threads} threads, {args.repeats} repeats in turn',
    )
    for name, own in times.items():
        table.add_row(
            name,
            f'{statistics.median(own.cpu):.2f}',
            f'{median_ratio(own.cpu, bare.cpu):.2f}',
            f'{median_ratio(own.wall, bare.wall):.2f}',
        )
    console.print(table)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if args.device == 'cuda':
        peak = torch.cuda.max_memory_allocated()
    console.print(f'peak memory: {peak / 2**30:.2f} GiB')
    summary = figures['all figures'].summary()
    for name, value in summary.items():
        text = f'{value:.4f}' if isinstance(value, float) else str(value)
        console.print(f'{name}: {text}')


if __name__ == '__main__':
    main()
