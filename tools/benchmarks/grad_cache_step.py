"""Memory and time of a training step with gradient caching.

    python tools/benchmarks/grad_cache_step.py
    python tools/benchmarks/grad_cache_step.py --batches 64 128 --chunk 16

InfoNCE on two views by a ResNet-18, with the whole batch at a time and in chunks. Memory is the
peak beyond weights and images; time is CPU time in turn. `floor` is 1 + (N - 1) / N times the share
of the forward pass, as N - 1 of N chunks go forward twice. `kept` keeps the activations of all
chunks.
"""

import sys
from pathlib import Path

import torch
from memory_peak import peak_extra_memory
from rich.console import Console
from rich.table import Table
from torchvision.models import resnet18

from mmrank.functional import grad_cache
from mmrank.losses import InfoNCELoss

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.timing import cpu_in_turn


def make_steps(network, chunk):
    """The steps that are compared, by name."""
    loss = InfoNCELoss(tau=0.1)

    def train(embed):
        return lambda images: loss(*embed(images).chunk(2)).backward()

    return {
        'whole': train(network),
        'chunks': train(lambda x: grad_cache(network, x, chunk)),
        'kept': train(lambda x: torch.cat([*map(network, x.split(chunk))])),
        'forward': torch.no_grad()(network),
    }


def main():
    chunk = (32, 'views at a time')
    size = (32, 'side of the images')
    parser = tool_parser(__doc__, batches=[32, 64, 128], chunk=chunk, size=size, repeats=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = resnet18(num_classes=128).eval()
    # Gradients are there before and after a step.
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)

    table = Table(
        *('batch', 'whole, MB', 'chunks, MB', 'whole, s', 'chunks, s', 'ratio', 'floor', 'kept'),
        title=f'ResNet-18, two views of {args.size} x {args.size}, chunks of '
        f'{args.chunk} views, CPU seconds of one thread',
    )
    steps = make_steps(network, args.chunk)
    for batch in args.batches:

        def images(batch=batch):
            shape = 2 * batch, 3, args.size, args.size
            return (torch.randn(shape),)

        peaks = [peak_extra_memory(steps[name], images) for name in ('whole', 'chunks')]
        given = images()
        times = cpu_in_turn({name: (step, given) for name, step in steps.items()}, args.repeats)
        twice = max(0, 1 - args.chunk / (2 * batch))
        table.add_row(
            str(batch),
            *(f'{x / 1e6:.1f}' for x in peaks),
            *(f'{times[name][0]:.2f}' for name in ('whole', 'chunks')),
            f'{times["chunks"][1]:.2f}',
            f'{1 + twice * times["forward"][1]:.2f}',
            f'{times["kept"][1]:.2f}',
        )
    Console().print(table)


if __name__ == '__main__':
    main()
