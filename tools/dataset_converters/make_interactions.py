r"""Generate made-up interactions of users and items.

Everything follows from the seed. Users and items have hidden tastes, and popularities a long tail,
as in real data: what popularity does to a loss shows here too. Use it where no real data set can be
had:

    python tools/dataset_converters/make_interactions.py data/interactions

writes OUT/train.csv and OUT/test.csv, which configs/_base_/datasets/synthetic_interactions.py
reads.
"""

import sys
from pathlib import Path

import numpy as np
from rich.console import Console

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import show_user_errors
from mmrank.files import write_csv_atomically

# Of the hidden tastes.
_DIMENSIONS = 4
# Share of the interactions that is held out.
_HELD_OUT = 0.2


def make_interactions(
    num_users: int = 200, num_items: int = 100, per_user: int = 12, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out pairs, with log odds of tastes, activity and popularity.

    There are at most as many items as users, and ``per_user``, the mean number of interactions of a
    user, is at most half of the items.
    """
    rng = np.random.default_rng(seed)
    shape = num_users, num_items
    users, items = (rng.normal(size=(n, _DIMENSIONS)) for n in shape)
    scores = 2 * users @ items.T / _DIMENSIONS**0.5
    scores += rng.normal(size=(shape[0], 1)) + 2 * rng.normal(size=shape[1])
    # Gumbel noise and a threshold: a sample by these odds of known size.
    noisy = scores + rng.gumbel(size=shape)
    count = per_user * num_users
    chosen = noisy > np.partition(noisy, -count, axis=None)[-count - 1]
    owner = rng.permutation(num_users)
    owned = np.arange(num_users) % num_items
    # One pair a user and an item that is always there, always for training.
    kept = np.zeros(shape, dtype=bool)
    kept[owner, owned] = True
    held_out = chosen & ~kept & (rng.random(shape) < _HELD_OUT)
    return np.argwhere((chosen | kept) & ~held_out), np.argwhere(held_out)


def write_interactions(out_dir: str | Path, *shape: int, **options: int) -> None:
    """Write what :func:`make_interactions` makes."""
    for name, pairs in zip(('train', 'test'), make_interactions(*shape, **options)):
        rows = [('user', 'item'), *pairs.tolist()]
        write_csv_atomically(rows, Path(out_dir) / f'{name}.csv')


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__, seed=0)
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    args = parse_at_least(parser, seed=0)
    write_interactions(args.out, seed=args.seed)
    Console().print(f'Wrote {args.out}: 200 users, 100 items.')


if __name__ == '__main__':
    sys.exit(main())
