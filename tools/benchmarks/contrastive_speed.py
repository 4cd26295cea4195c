"""Cost of the contrastive losses and their state compared with a training step.

    python tools/benchmarks/contrastive_speed.py
    python tools/benchmarks/contrastive_speed.py --dimensions 8192
    python tools/benchmarks/contrastive_speed.py --device cuda

Timed in turn are forward + backward of the loss with the state of each sample, and of a ResNet-18
on the two views of the batch. "State alone" looks up and updates the temperatures of a batch.
"""

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torchvision.models import resnet18

from mmrank.registry import MODELS
from mmrank.state import SampleTemperature
from mmrank.state.sample_state import check_sample_ids

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import benchmark_parser
from lib.common.timing import in_turn


def losses(samples: int) -> dict:
    """Configs by name; those with state for so many samples."""
    state = dict(num_samples=samples)
    return {
        'InfoNCE': dict(type='mmrank.InfoNCELoss', tau=0.5),
        'TaU + SimCLR': dict(type='mmrank.TaUSimCLRLoss'),
        'SogCLR': dict(type='mmrank.SogCLRLoss', **state),
        'iSogCLR': dict(type='mmrank.ISogCLRLoss', **state),
        'iSogCLR, host': dict(type='mmrank.ISogCLRLoss', storage='host', **state),
        'iSogCLR, images and texts': dict(
            type='mmrank.BimodalISogCLRLoss', storage='host', **state
        ),
        'CLIP': dict(type='mmrank.CLIPLoss'),
        'SigLIP': dict(type='mmrank.SigLIPLoss'),
        'CyCLIP': dict(type='mmrank.CyCLIPLoss'),
        'CLIP, individual': dict(type='mmrank.IndividualCLIPLoss', **state),
        'SogCLR, images and texts': dict(type='mmrank.SogCLRLoss', bimodal=True, **state),
        'FastCLIP-v3': dict(type='mmrank.SogCLRLoss', bimodal=True, rho=6.5, **state),
        'FlatCLR': dict(type='mmrank.FlatCLRLoss'),
        'SimCo': dict(type='mmrank.SimCoLoss'),
        'spectral': dict(type='mmrank.SpectralContrastiveLoss'),
        'VICReg': dict(type='mmrank.VICRegLoss'),
        'Barlow Twins': dict(type='mmrank.BarlowTwinsLoss'),
    }


def make_network(args):
    """Forward and backward of a ResNet-18 on both views."""
    network = resnet18(num_classes=args.width).to(args.device)
    images = torch.randn(2 * args.batch, 3, args.size, args.size, device=args.device)

    def step():
        network.zero_grad(set_to_none=True)
        network(images).square().mean().backward()

    return step


def make_views(args) -> list:
    """Two leaves of embeddings."""
    g = torch.Generator().manual_seed(0)
    return [
        torch.randn(args.batch, args.width, generator=g).to(args.device).requires_grad_()
        for _ in range(2)
    ]


def draw_ids(args, generator: torch.Generator) -> torch.Tensor:
    """Samples of a batch, each once as a sampler draws them."""
    first = torch.randint(args.samples, (1,), generator=generator)
    # Steps of a prime: all over the table, and none twice.
    return (first + 7919 * torch.arange(args.batch)) % args.samples


def make_step(config: dict, args):
    """Forward and backward of a loss; other samples at every call."""
    loss = MODELS.build(config).to(args.device)
    g = torch.Generator().manual_seed(0)
    views = make_views(args)

    def step():
        for view in views:
            view.grad = None
        loss(*views, draw_ids(args, g)).backward()

    states = loss.states() if hasattr(loss, 'states') else []
    return step, sum(x.num_bytes for x in states)


def make_state_step(storage: str, args):
    """Look-up and update of the temperatures of a batch."""
    state = SampleTemperature(args.samples, storage=storage).to(args.device)
    g = torch.Generator().manual_seed(0)
    log_g, gradient = torch.randn(2, args.batch, generator=g).to(args.device)

    def step():
        ids = draw_ids(args, g)
        check_sample_ids(ids, args.batch, args.samples)
        entries = state.fetch(ids, torch.device(args.device))
        state.update(ids.to(args.device), entries, log_g, gradient, [args.batch])

    return step


def main():
    images = (32, 'side of the images')
    sizes = dict(batch=256, size=images, dimensions=128, samples=10_000_000)
    args = benchmark_parser(__doc__, **sizes, repeats=9, threads=1, device='cpu').parse_args()
    args.width = args.dimensions
    torch.set_num_threads(args.threads)

    steps = {
        'ResNet-18': (make_network(args), ()),
        'state alone': (make_state_step('device', args), ()),
        'state alone, host': (make_state_step('host', args), ()),
    }
    memory = {}
    for name, config in losses(args.samples).items():
        step, memory[name] = make_step(config, args)
        steps[name] = (step, ())
    results = in_turn(steps, args.repeats)
    table = Table(
        'forward + backward',
        'median ms',
        '% of ResNet-18',
        'state, MB',
        title=f'{args.batch} samples, {args.width}-d, {args.samples} in all; ResNet-18 at '
        f'{args.size} x {args.size}; {args.device}, {args.threads} threads',
    )
    for name, (seconds, ratio) in results.items():
        size = f'{memory[name] / 1e6:.0f}' if memory.get(name) else ''
        table.add_row(name, f'{1e3 * seconds:.2f}', f'{100 * ratio:.2f}', size)
    Console().print(table)


if __name__ == '__main__':
    main()
