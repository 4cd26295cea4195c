"""Made-up interactions of users and items with hidden tastes.

Everything follows from the seed. Popularities have a long tail, as in real
data: what popularity does to a loss shows here too.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glyphs import check_least
from mmrank.files import write_csv_atomically


@dataclass(frozen=True)
class InteractionsSpec:
    """Settings of the interactions."""

    num_users: int = 200  # Users m
    num_items: int = 100  # Items n, at most as many as users
    per_user: float = 12.0  # Mean number of interactions of a user
    dimensions: int = 4  # Of the hidden tastes
    held_out: float = 0.2  # Share of each user's interactions that is held out
    seed: int = 0  # Another seed makes other tastes

    def __post_init__(self) -> None:
        check_least(self, num_users=2, num_items=2, per_user=1, dimensions=1, seed=0)
        if self.num_items > self.num_users:
            raise ValueError(
                f'num_items={self.num_items} must not exceed num_users='
                f'{self.num_users}: each item is given to a user of its own'
            )
        if self.per_user > self.num_items / 2:
            raise ValueError(
                f'per_user={self.per_user:g} must be at most half of num_items={self.num_items}'
            )
        if not 0 < self.held_out < 1:
            raise ValueError(f'held_out must be in (0, 1), got {self.held_out}')


def make_interactions(spec: InteractionsSpec) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out pairs, with log odds of tastes, activity and popularity."""
    rng = np.random.default_rng(spec.seed)
    shape = spec.num_users, spec.num_items
    users, items = (rng.normal(size=(n, spec.dimensions)) for n in shape)
    scores = 2 * users @ items.T / spec.dimensions**0.5
    scores += rng.normal(size=(shape[0], 1)) + 2 * rng.normal(size=shape[1])
    # Gumbel noise and a threshold: a sample by these odds of known size.
    noisy = scores + rng.gumbel(size=shape)
    count = round(spec.per_user * spec.num_users)
    chosen = noisy > np.partition(noisy, -count, axis=None)[-count - 1]
    owner = rng.permutation(spec.num_users)
    owned = np.arange(spec.num_users) % spec.num_items
    # One pair a user and an item that is always there, always for training.
    kept = np.zeros(shape, dtype=bool)
    kept[owner, owned] = True
    held_out = chosen & ~kept & (rng.random(shape) < spec.held_out)
    return np.argwhere((chosen | kept) & ~held_out), np.argwhere(held_out)


def write_interactions(out_dir: str | Path, spec: InteractionsSpec) -> None:
    """Write ``train.csv`` and ``test.csv`` with ``user,item`` lines."""
    for name, pairs in zip(('train', 'test'), make_interactions(spec)):
        rows = [('user', 'item'), *pairs.tolist()]
        write_csv_atomically(rows, Path(out_dir) / f'{name}.csv')
