r"""Generate made-up interactions of users and items.

Everything follows from the seed. Users and items have hidden tastes, and popularities a long tail,
as in real data: what popularity does to a loss shows here too. Use it where no real data set can be
had:

    python tools/dataset_converters/make_interactions.py data/interactions

writes OUT/train.csv and OUT/test.csv, which configs/_base_/datasets/synthetic_interactions.py
reads.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors
from mmrank.files import write_csv_atomically
from mmrank.settings import check_at_least, check_within

# Of the hidden tastes.
_DIMENSIONS = 4


@dataclass(frozen=True)
class InteractionsSpec:
    """Settings of the interactions."""

    num_users: int = 200  # Users m
    num_items: int = 100  # Items n, at most as many as users
    per_user: float = 12.0  # Mean number of interactions of a user
    held_out: float = 0.2  # Share of each user's interactions that is held out
    seed: int = 0  # Another seed makes other tastes

    def __post_init__(self) -> None:
        check_at_least(2, num_users=self.num_users, num_items=self.num_items)
        check_at_least(1, per_user=self.per_user)
        check_at_least(0, seed=self.seed)
        check_within('(0, 1)', held_out=self.held_out)
        if self.num_items > self.num_users:
            what = f'num_items={self.num_items} must not exceed num_users={self.num_users}'
            raise ValueError(f'{what}: each item is given to a user of its own')
        if self.per_user > self.num_items / 2:
            raise ValueError(
                f'per_user={self.per_user:g} must be at most half of num_items={self.num_items}'
            )


def make_interactions(spec: InteractionsSpec) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out pairs, with log odds of tastes, activity and popularity."""
    rng = np.random.default_rng(spec.seed)
    shape = spec.num_users, spec.num_items
    users, items = (rng.normal(size=(n, _DIMENSIONS)) for n in shape)
    scores = 2 * users @ items.T / _DIMENSIONS**0.5
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
    for name, pairs in zip(('train', 'test'), make_interactions(spec)):
        rows = [('user', 'item'), *pairs.tolist()]
        write_csv_atomically(rows, Path(out_dir) / f'{name}.csv')


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__, seed=0)
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    args = parser.parse_args()
    spec = InteractionsSpec(seed=args.seed)
    write_interactions(args.out, spec)
    Console().print(f'Wrote {args.out}: {spec.num_users} users, {spec.num_items} items.')


if __name__ == '__main__':
    sys.exit(main())
