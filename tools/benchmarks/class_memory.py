"""Peak memory of the ranking losses where there are many classes.

    python tools/benchmarks/class_memory.py
    python tools/benchmarks/class_memory.py --rows 100000 --classes 1203

Forward and backward on random logits, one ranking of all classes and one per class, half of the
scores ignored as in federated annotations. Shown are the bytes of all tensors alive at the worst
moment, the gradient included, over the logits' bytes, and CPU time.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from memory_peak import peak_extra_memory

from mmrank.errors import show_user_errors
from mmrank.losses.loss_type import build_loss

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import benchmark_parser

LOSSES = (
    *('StableAPLoss', 'APLoss', 'ALRPLoss', 'RankSortLoss', 'DRLoss'),
    *('SOPRCLoss', 'SmoothAPLoss', 'AUCLoss'),
    *('ListwiseAPLoss', 'BlackBoxAPLoss'),
)
MODES = ('flatten', 'per_class')


def parse_args() -> argparse.Namespace:
    parser = benchmark_parser(__doc__, rows=(5000, 'boxes'), classes=1203, positives=50)
    parser.add_argument('--modes', nargs='+', default=MODES, choices=MODES)
    args = parser.parse_args()
    if not 0 < args.positives <= args.rows or args.classes < 1:
        parser.error(
            f'--positives {args.positives} must be from 1 to --rows '
            f'{args.rows}, and --classes {args.classes} at least 1'
        )
    return args


def make_batch(rows: int, classes: int, positives: int) -> tuple:
    """Logits, class indices and a mask."""
    generator = torch.Generator().manual_seed(0)
    shape = rows, classes
    target = torch.full((rows,), classes)
    chosen = torch.randperm(rows, generator=generator)[:positives]
    of_chosen = torch.randint(classes, (positives,), generator=generator)
    target[chosen] = of_chosen
    counted = torch.randint(2, shape, dtype=torch.bool, generator=generator)
    counted[chosen, of_chosen] = True
    scores = torch.randn(shape, generator=generator, requires_grad=True)
    return scores, target, counted


def make_step(loss, positives: int, device: str = 'cpu') -> Callable:
    """Forward and backward of a loss, told what it requires of the boxes."""
    name = {'quality': 'quality', 'loss': 'box_loss'}
    name = name.get(getattr(loss, 'box_input', None))
    told = {name: torch.rand(positives, device=device)} if name else {}

    def step(scores, target, weight=None) -> None:
        if getattr(loss, 'keeps_samples', False):
            told['sample_idx'] = torch.arange(len(scores))
        value = loss(scores, target, weight, **told)
        parts = value.values() if isinstance(value, dict) else [value]
        sum(parts).backward()

    return step


def measure(name: str, mode: str, args: argparse.Namespace) -> float:
    """Peak bytes over the bytes of the logits."""
    config = dict(type=f'mmrank.{name}', mode=mode)
    loss = build_loss('loss', config, args.classes)
    sizes = args.rows, args.classes, args.positives
    peak = peak_extra_memory(make_step(loss, args.positives), lambda: make_batch(*sizes))
    return peak / (args.rows * args.classes * 4)


@show_user_errors(KeyError)
def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    print(f'{args.rows} x {args.classes} logits, {args.positives} positives')
    for name in LOSSES:
        for mode in args.modes:
            start = time.process_time()
            ratio = measure(name, mode, args)
            seconds = time.process_time() - start
            print(
                f'{name:16} {mode:10} peak {ratio:5.2f} x the logits, {seconds:.1f} s', flush=True
            )


if __name__ == '__main__':
    sys.exit(main())
