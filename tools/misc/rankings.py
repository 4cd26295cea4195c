"""Made-up lists of scores, and the training of a sorter on them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmrank.losses.ranking.sodeep import RankSorter, below


def made_up_lists(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Lists of scores as losses meet them (Engilberge et al., SoDeep, CVPR 2019, section 3.3)."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    kind = torch.randint(4, (count, 1), generator=generator)
    flat = 2 * uniform(count, length) - 1
    normal = torch.randn(count, length, generator=generator) / 2
    ends = 2 * uniform(count, 2) - 1
    steps = torch.linspace(0, 1, length)
    even = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * steps
    narrow = ends[:, :1] + flat * (0.1 + 0.4 * uniform(count, 1))
    lists = torch.where(kind == 0, flat, normal)
    lists = torch.where(kind == 2, even, lists)
    lists = torch.where(kind == 3, narrow, lists).clamp(-2, 2)
    order = uniform(count, length).argsort(1)
    lists = lists.gather(1, order)
    filled = torch.randint(max(length // 2, 1), (count, 1), generator=generator)
    filled = filled * (uniform(count, 1) < 0.5)
    is_fill = torch.arange(length) >= length - filled
    real = torch.where(is_fill, torch.inf, lists)
    lists = torch.where(is_fill, below(real), lists)
    return lists.gather(1, uniform(count, length).argsort(1))


def exact_ranks(scores: Tensor) -> Tensor:
    """(L, n) ranks over n of (L, n) scores without ties, 1/n for the highest of each list."""
    ranks = scores.argsort(1, descending=True).argsort(1) + 1
    return ranks.to(scores.dtype) / scores.size(1)


def rank_error(sorter: RankSorter, lists: Tensor) -> float:
    """Mean distance to the exact rank; entries that fill up do not count."""
    with torch.no_grad():
        errors = (sorter(lists) - exact_ranks(lists)).abs() * lists.size(1)
    counts = lists > lists.amin(1, keepdim=True)
    return float(errors[counts].mean())


def train_sorter(
    sorter: RankSorter,
    *,
    steps: int,
    batch_size: int = 256,
    learning_rate: float = 2e-3,
    seed: int = 0,
    interval: int = 100,
) -> Iterator[tuple[int, float]]:
    """Train a network to rank, by the L1 distance to the exact ranks."""
    device = sorter.order.device
    generator = torch.Generator().manual_seed(seed)
    held_out = made_up_lists(512, sorter.length, torch.Generator().manual_seed(seed + 1)).to(device)
    optimizer = torch.optim.Adam(sorter.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        lists = made_up_lists(batch_size, sorter.length, generator)
        lists = lists.to(device)
        # Entries that fill up tie: which of them comes first says nothing.
        counts = lists > lists.amin(1, keepdim=True)
        error = (sorter(lists) - exact_ranks(lists)).abs()
        optimizer.zero_grad()
        error[counts].mean().backward()
        torch.nn.utils.clip_grad_norm_(sorter.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % interval == 0 or step == steps:
            yield step, rank_error(sorter, held_out)
