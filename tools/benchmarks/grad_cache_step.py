"""Memory and time of a training step with gradient caching.

A ResNet-18 whose batch norm is frozen embeds two views of each image, InfoNCE
compares them, and the gradient goes back to the weights; once with the whole
batch at a time, once in chunks. Memory is what the step takes from torch's
CPU allocator beyond weights and images, at the worst moment. Time is CPU time
of the process, both sides in turn.

    python tools/benchmarks/grad_cache_step.py
    python tools/benchmarks/grad_cache_step.py --batches 64 128 --chunk 16
"""

import argparse

import torch
from memory_peak import peak_extra_memory
from rich.console import Console
from rich.table import Table
from torchvision.models import resnet18

from mmrank.functional import grad_cache
from mmrank.losses import InfoNCELoss
from mmrank.studies.common.timing import cpu_in_turn


def make_step(network, chunk):
    """Forward and backward, all rows at once if ``chunk`` is None."""
    loss = InfoNCELoss(tau=0.1)
    network.zero_grad(set_to_none=False)

    def step(images):
        if chunk is None:
            rows = network(images)
        else:
            rows = grad_cache(network, images, chunk)
        loss(*rows.chunk(2)).backward()

    return step


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        '--batches', type=int, nargs='+', default=[32, 64, 128]
    )
    parser.add_argument(
        '--chunk', type=int, default=32, help='views at a time'
    )
    parser.add_argument('--size', type=int, default=32, help='of the images')
    parser.add_argument('--repeats', type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = resnet18(num_classes=128).eval()
    # Gradients are there before and after a step.
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)

    table = Table(
        'batch',
        'whole, MB',
        'chunks, MB',
        'whole, s',
        'chunks, s',
        'ratio of times',
        title=f'ResNet-18, two views of {args.size} x {args.size}, chunks of '
        f'{args.chunk} views, CPU seconds of one thread',
    )
    for batch in args.batches:
        steps = {
            'whole': make_step(network, None),
            'chunks': make_step(network, args.chunk),
        }

        def images(batch=batch):
            shape = 2 * batch, 3, args.size, args.size
            return (torch.randn(shape),)

        peaks = [peak_extra_memory(x, images) for x in steps.values()]
        given = images()
        times = cpu_in_turn(
            {name: (x, given) for name, x in steps.items()}, args.repeats
        )
        table.add_row(
            str(batch),
            *(f'{x / 1e6:.1f}' for x in peaks),
            *(f'{seconds:.2f}' for seconds, _ in times.values()),
            f'{times["chunks"][1]:.2f}',
        )
    Console().print(table)


if __name__ == '__main__':
    main()
