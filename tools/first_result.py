"""Rank rare classes: stable AP against cross-entropy, with torch alone, in a minute.

    make try
    python tools/first_result.py --seeds 5

makes up images of two out of twenty characters, the first of which is 40 times as frequent as the
last. Either loss, as it is without an option, trains the same small network with each of four
learning rates. That with the best mean AP on the validation images trains it again with other
seeds, and these models alone see the test images. Prints a table and draws precision-recall curves.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from mmrank import StableAPLoss
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import show_user_errors
from mmrank.files import check_output
from mmrank.functional import average_precision
from mmrank.pictures.figures import new_panels, save
from mmrank.pictures.palette import colour

CLASSES = 20
IMBALANCE = 40
RARE = 7
RATES = (0.001, 0.003, 0.01, 0.03)
SIZE = 20
EPOCHS = 40
BATCH = 128
LOSSES = {'cross-entropy': nn.BCEWithLogitsLoss, 'stable AP': StableAPLoss}


def characters(labels: Tensor, seed: int) -> Tensor:
    """(n, 1, SIZE, SIZE) drawings of made-up characters: turned, scaled, noisy strokes."""
    invent = torch.Generator().manual_seed(7)
    corners = torch.rand(CLASSES, 5, 2, generator=invent)[labels] - 0.5
    hand = torch.Generator().manual_seed(seed)
    n = len(labels)
    corners += 0.05 * torch.randn(n, 5, 2, generator=hand)
    angle = 0.3 * torch.randn(n, generator=hand)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(n, 2, 2)
    scale = 1.1 + 0.3 * torch.rand(n, 1, 1, generator=hand)
    corners = corners @ turn * scale + 0.1 * torch.randn(n, 1, 2, generator=hand)
    axis = torch.linspace(-1, 1, SIZE)
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing='ij'), -1).view(1, -1, 2)
    ink = torch.zeros(n, SIZE * SIZE)
    for begin, end in zip(corners.unbind(1), corners[:, 1:].unbind(1)):
        along = (end - begin)[:, None]
        place = ((pixels - begin[:, None]) * along).sum(-1) / along.square().sum(-1)
        gap = pixels - begin[:, None] - place.clamp(0, 1)[..., None] * along
        ink = torch.maximum(ink, (1.5 - 10 * gap.norm(dim=-1)).clamp(0, 1))
    return ink.view(n, 1, SIZE, SIZE)


def made_up_data() -> dict[str, tuple[Tensor, Tensor]]:
    """Images of two characters and their (n, C) labels of 0 and 1."""
    share = torch.logspace(0, -math.log10(IMBALANCE), CLASSES)
    data = {}
    for seed, (name, n) in enumerate(dict(train=1000, val=1000, test=2000).items()):
        drawn = torch.Generator().manual_seed(seed)
        pairs = torch.multinomial(share.expand(n, -1), 2, generator=drawn)
        ink = torch.maximum(*(characters(y, 2 * seed + i) for i, y in enumerate(pairs.unbind(1))))
        images = ink + 0.3 * torch.randn(ink.shape, generator=drawn)
        data[name] = images, torch.zeros(n, CLASSES).scatter_(1, pairs, 1)
    return data


def trained(loss_name: str, rate: float, seed: int, data: tuple[Tensor, Tensor]) -> nn.Module:
    images, labels = data
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()
    )
    model.extend([nn.Flatten(), nn.Linear(32 * 3 * 3, 64), nn.ReLU(), nn.Linear(64, CLASSES)])
    loss = LOSSES[loss_name]()
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    steps = EPOCHS * len(labels) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = torch.randint(len(labels), (BATCH,))
        value = loss(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def evaluated(model: nn.Module, data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """(C,) AP of each class, and (C, 101) its precision at recalls of 0 to 1."""
    images, labels = data
    scores = model(images)
    recalls = torch.linspace(0, 1, 101)
    values = []
    curves = []
    for own, is_positive in zip(scores.t(), labels.t().bool()):
        values.append(average_precision(own, is_positive))
        found = is_positive[own.argsort(descending=True)].double().cumsum(0)
        precision = found / torch.arange(1, len(found) + 1)
        # What is reached at this recall or beyond it.
        best = precision.flip(0).cummax(0).values.flip(0)
        place = torch.searchsorted(found, (recalls * found[-1]).clamp(min=1))
        curves.append(best[place])
    return torch.stack(values), torch.stack(curves)


def draw(results: dict[str, list[tuple[Tensor, Tensor]]], path: Path) -> None:
    """Precision-recall curves, means over the classes of a panel and over the seeds."""
    figure, axes = new_panels(1, 2)
    shown = {'all classes': slice(None), f'the {RARE} rarest classes': slice(-RARE, None)}
    for axis, (title, classes) in zip(axes[0], shown.items()):
        for index, (name, runs) in enumerate(results.items()):
            curve = torch.stack([curves[classes].mean(0) for _, curves in runs]).mean(0)
            axis.plot(np.linspace(0, 1, len(curve)), curve, color=colour(index), label=name)
        axis.set(title=title, xlabel='recall', ylabel='precision', xlim=(0, 1), ylim=(0, 1))
        axis.title.set_size(10)
    axes[0, 0].legend(fontsize=9)
    save(figure, path)


def percent(values: list[Tensor]) -> str:
    """Mean and standard deviation over the seeds."""
    values = 100 * torch.stack(values).double()
    return f'{values.mean():.1f} ± {values.std():.1f}'


@show_user_errors()
def main() -> None:
    out = Path('work_dirs/first_result')
    parser = tool_parser(__doc__, seeds=(3, 'models to test, at least 2'), out=(out, 'folder'))
    args = parse_at_least(parser, seeds=2)
    check_output(args.out / 'pr_curves.png')
    started = time.time()
    data = made_up_data()
    trials = [(name, rate) for name in LOSSES for rate in RATES]
    found: dict[str, dict[float, nn.Module]] = {name: {} for name in LOSSES}
    for name, rate in track(trials, 'Learning rates'):
        found[name][rate] = trained(name, rate, 0, data['train'])
    best = {
        name: max(models, key=lambda rate: evaluated(models[rate], data['val'])[0].mean())
        for name, models in found.items()
    }
    tested = {name: [found[name][rate]] for name, rate in best.items()}
    for name, seed in track([(n, s) for n in LOSSES for s in range(1, args.seeds)], 'Other seeds'):
        tested[name].append(trained(name, best[name], seed, data['train']))
    results = {
        name: [evaluated(x, data['test']) for x in models] for name, models in tested.items()
    }
    table = Table('loss', 'learning rate', 'mean AP', f'of the {RARE} rarest')
    for name, runs in results.items():
        means = (
            [ap[classes].mean() for ap, _ in runs] for classes in (slice(None), slice(-RARE, None))
        )
        table.add_row(name, f'{best[name]:g}', *map(percent, means))
    Console().print(table)
    draw(results, args.out / 'pr_curves.png')
    print(
        f'Test images, {args.seeds} seeds, {time.time() - started:.0f} s. '
        f'Curves: {args.out / "pr_curves.png"}'
    )


if __name__ == '__main__':
    sys.exit(main())
