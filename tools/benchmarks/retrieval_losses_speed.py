"""Speed of the retrieval losses beside the plain matrix of cosines.

Timed is forward + backward from embeddings to their gradient. The plain side
multiplies queries with gallery and sends a gradient back. All sides run in
one process and in turn, so the ratios hold on a busy machine; single times do
not.

    python tools/benchmarks/retrieval_losses_speed.py
    python tools/benchmarks/retrieval_losses_speed.py --sizes 224x4320
    python tools/benchmarks/retrieval_losses_speed.py --device cuda

A size is QUERIESxGALLERY: the queries are the batch, of which every image
searches the others; what the gallery has more than the batch is a memory
without gradient.
"""

import argparse
import importlib.util

import torch
from rich.console import Console
from rich.table import Table

from mmrank.losses import EmbeddingBatch
from mmrank.registry import MODELS
from mmrank.studies.common.timing import in_turn

LOSSES = {
    'stable AP': dict(
        type='mmrank.StableAPLoss',
        mode='per_class',
        mean_scope='global',
        tau=0.1,
        score_range=(-1, 1),
    ),
    'SOPRC': dict(type='mmrank.SOPRCLoss'),
    'SmoothAP': dict(type='mmrank.SmoothAPLoss'),
    'AP-Loss': dict(type='mmrank.APLoss', delta=0.05),
    'list-wise AP': dict(type='mmrank.ListwiseAPLoss'),
    'BlackBox AP': dict(type='mmrank.BlackBoxAPLoss'),
    'AUC, sigmoid': dict(type='mmrank.AUCLoss'),
    'AUC, Huber': dict(
        type='mmrank.AUCLoss', surrogate='one_sided_huber', tau=0.5
    ),
}
PML_LOSSES = {
    f'PML {name}': dict(type='mmrank.PMLLoss', loss=dict(type=name))
    for name in (
        'ContrastiveLoss',
        'TripletMarginLoss',
        'MultiSimilarityLoss',
        'FastAPLoss',
    )
}


def make_batch(queries, gallery, args):
    """A batch with gradient, a memory without."""
    g = torch.Generator().manual_seed(0)
    classes = max(queries // args.class_size, 1)
    labels = torch.arange(gallery) % classes
    x = torch.randn(gallery, args.dimensions, generator=g)
    x += torch.randn(classes, args.dimensions, generator=g)[labels]
    x = torch.nn.functional.normalize(x).to(args.device)
    labels = labels.to(args.device)
    itself = torch.eye(queries, gallery, device=args.device) > 0
    leaf, memory = x[:queries].clone().requires_grad_(), x[queries:]

    def make():
        leaf.grad = None
        rows = torch.cat([leaf, memory]) if len(memory) else leaf
        return EmbeddingBatch(leaf, labels[:queries], rows, labels, itself)

    return make


def plain(make):
    make().scores().sum().backward()


def step(make, loss):
    loss.embedding_loss(make()).backward()


def measure(queries, gallery, args):
    losses = dict(LOSSES)
    if importlib.util.find_spec('pytorch_metric_learning'):
        losses.update(PML_LOSSES)
    make = make_batch(queries, gallery, args)
    steps = {'cosines alone': (plain, (make,))}
    for name, config in losses.items():
        loss = MODELS.build(config).to(args.device)
        steps[name] = (step, (make, loss))
    return in_turn(steps, args.repeats)


def size(text):
    """QUERIESxGALLERY as two numbers."""
    try:
        queries, gallery = (int(x) for x in text.split('x'))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not QUERIESxGALLERY, as in 224x1024'
        ) from None
    if not 0 < queries <= gallery:
        raise argparse.ArgumentTypeError(
            f'{text!r}: the gallery holds the queries, so it is no smaller'
        )
    return queries, gallery


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        '--sizes',
        type=size,
        nargs='+',
        default=[(224, 224), (224, 1024), (1024, 1024)],
        metavar='QxG',
    )
    parser.add_argument('--dimensions', type=int, default=512)
    parser.add_argument('--class-size', type=int, default=4)
    parser.add_argument('--repeats', type=int, default=5)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    table = Table(
        'forward + backward',
        *(
            head
            for queries, gallery in args.sizes
            for head in (f'{queries}x{gallery}, ms', 'x cosines')
        ),
        title=f'{args.dimensions}-d float32, {args.class_size} images of a '
        f'class in a batch, {args.device}, {args.threads} threads',
    )
    rows = {}
    for queries, gallery in args.sizes:
        with console.status(f'{queries} x {gallery} ...'):
            for name, (seconds, ratio) in measure(
                queries, gallery, args
            ).items():
                rows.setdefault(name, []).extend(
                    [f'{1e3 * seconds:.1f}', f'{ratio:.2f}']
                )
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)


if __name__ == '__main__':
    main()
