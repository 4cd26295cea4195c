"""Speed of two-tower training and evaluation.

    python tools/benchmarks/in_batch_speed.py
    python tools/benchmarks/in_batch_speed.py --device cuda --threads 8

On made-up interactions of the size of MovieLens-1M: a training step of each loss compared with
plain in-batch sampling, the search for 25 items for each user compared with the bare product of the
embeddings, and an epoch, and where its time goes.
"""

import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from mmrank.datasets.interactions import InteractionDataset, Interactions
from mmrank.datasets.samplers import InBatchPairSampler
from mmrank.functional.metrics.top_k_inner_product import top_k_inner_product
from mmrank.registry import MODELS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.timing import in_turn

POINTWISE = ('square', 'logistic')
MODES = ('in_batch', 'unbiased', 'unbiased_omega', 'pos_neg', 'popularity')


def make_pairs(args):
    """Distinct pairs; every user and every item has one."""
    rng = np.random.default_rng(0)
    m, n = args.users, args.items
    weights = 1 / np.arange(1, n + 1) ** 0.8
    keys = np.arange(max(m, n))
    keys = keys % m * n + keys % n
    while len(keys) < args.pairs:
        rows = rng.integers(m, size=args.pairs)
        cols = rng.choice(n, size=args.pairs, p=weights / weights.sum())
        keys = np.unique(np.concatenate([keys, rows * n + cols]))
    extra = rng.permutation(len(keys))[: len(keys) - args.pairs]
    keys = np.delete(keys, extra)
    _, rows = np.unique(keys // n, return_inverse=True)
    _, cols = np.unique(keys % n, return_inverse=True)
    names = [range(x.max() + 1) for x in (rows, cols)]
    return Interactions.of_pairs(rows, cols, *names)


class Training:
    """A model and what a step of it needs."""

    def __init__(self, pairs, mode, pointwise, args):
        dataset = InteractionDataset.__new__(InteractionDataset)
        dataset.sampling, dataset.interactions = 'in_batch', pairs
        size = max(2, round(len(pairs) * args.ratio**0.5))
        self.dataset = dataset
        self.sampler = InBatchPairSampler(dataset, size, seed=0)
        towers = [
            dict(type='mmrank.EmbeddingTower', num_entities=x, channels=64) for x in pairs.shape
        ]
        loss = dict(type='mmrank.InBatchLoss', mode=mode, pointwise=pointwise)
        config = dict(type='mmrank.TwoTower', left=towers[0], right=towers[1], loss=loss)
        self.model = MODELS.build(config).to(args.device)
        self.model.pair_loss.set_pairs(
            torch.from_numpy(pairs.rows), torch.from_numpy(pairs.cols), pairs.shape
        )
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.05)
        self.number, self.device = 0, args.device

    def step(self, spent=None):
        """One step; ``spent`` collects the seconds of its parts."""
        spent = defaultdict(float) if spent is None else spent
        clock = _Clock(spent, self.device)
        indices = self.sampler.rank_batch(self.number)
        self.number += 1
        batch = self.dataset.__getitems__(indices)
        batch = self.model.data_preprocessor(batch)
        clock.stop('batch')
        self.optimizer.zero_grad()
        loss = self.model(mode='loss', **batch)['loss']
        clock.stop('loss')
        loss.backward()
        clock.stop('gradient')
        self.optimizer.step()
        clock.stop('AdaGrad')


class _Clock:
    """Splits one step into its parts, which a Timer cannot run alone."""

    def __init__(self, spent, device):
        self.spent, self.device = spent, device
        self.last = time.perf_counter()

    def stop(self, name):
        if self.device == 'cuda':
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.spent[name] += now - self.last
        self.last = now


def show_steps(pairs, args, console):
    """Training steps of all losses against plain in-batch sampling."""
    table = Table(
        'loss',
        *(x for p in POINTWISE for x in (f'{p}, ms', 'x in-batch')),
        title=f'A training step at batch ratio {args.ratio:g}',
    )
    rows = {mode: [] for mode in MODES}
    for pointwise in POINTWISE:
        steps = {mode: (Training(pairs, mode, pointwise, args).step, ()) for mode in MODES}
        with console.status(f'steps, {pointwise} ...'):
            found = in_turn(steps, args.repeats)
        for mode, (seconds, ratio) in found.items():
            rows[mode] += [f'{1e3 * seconds:.1f}', f'{ratio:.2f}']
    for mode, cells in rows.items():
        table.add_row(mode, *cells)
    console.print(table)


def show_top_k(pairs, args, console):
    """The search of evaluation against the bare product."""
    g = torch.Generator().manual_seed(0)
    left, right = (torch.randn(x, 64, generator=g).to(args.device) for x in pairs.shape)
    seen = [torch.from_numpy(x).to(args.device) for x in (pairs.rows, pairs.cols)]
    steps = {
        'product alone': (lambda: left @ right.t(), ()),
        'top 25': (lambda: top_k_inner_product(left, right, 25, *seen), ()),
    }
    with console.status('top-k ...'):
        found = in_turn(steps, args.repeats)
    table = Table('pass', 'ms', 'x product', title=f'Evaluation, {len(left)} x {len(right)}')
    for name, (seconds, ratio) in found.items():
        table.add_row(name, f'{1e3 * seconds:.1f}', f'{ratio:.2f}')
    console.print(table)


def show_epochs(pairs, args, console):
    """Seconds of an epoch and of its parts."""
    parts = ('batch', 'loss', 'gradient', 'AdaGrad')
    table = Table(
        'loss',
        'epoch, s',
        *(f'{x}, %' for x in parts),
        title=f'An epoch of {len(pairs)} interactions, unbiased loss',
    )
    for pointwise in POINTWISE:
        training = Training(pairs, 'unbiased', pointwise, args)
        # The first step draws the order of the epoch; it is part of it.
        spent = defaultdict(float)
        with console.status(f'epoch, {pointwise} ...'):
            for _ in range(training.sampler.num_batches):
                training.step(spent)
        total = sum(spent.values())
        table.add_row(pointwise, f'{total:.2f}', *(f'{100 * spent[x] / total:.0f}' for x in parts))
    console.print(table)


def main():
    sizes = dict(users=6000, items=3500, pairs=1_000_000, ratio=1e-3)
    args = tool_parser(__doc__, **sizes, repeats=9, threads=2, device='cpu').parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    with console.status('making up interactions ...'):
        pairs = make_pairs(args)
    console.print(
        f'{len(pairs)} pairs of {pairs.shape[0]} x {pairs.shape[1]}, '
        f'{args.threads} threads, {args.device}'
    )
    show_steps(pairs, args, console)
    show_top_k(pairs, args, console)
    show_epochs(pairs, args, console)


if __name__ == '__main__':
    main()
