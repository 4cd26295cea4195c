r"""Generate made-up interactions of users and items.

Everything follows from the seed. Use it where no real data set can be had:

    python tools/dataset_converters/make_interactions.py data/interactions

writes OUT/train.csv and OUT/test.csv, which configs/_base_/datasets/synthetic_interactions.py
reads.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from mmrank.errors import show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.synthetic.interactions import InteractionsSpec, write_interactions


def parse_args() -> argparse.Namespace:
    """Read the command line; defaults are those of InteractionsSpec."""
    spec = InteractionsSpec()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    for name, value, text in (
        ('users', spec.num_users, 'users'),
        ('items', spec.num_items, 'items, no more than users'),
        ('dimensions', spec.dimensions, 'width of the hidden tastes'),
        ('seed', spec.seed, 'seed'),
        ('per-user', spec.per_user, 'mean interactions of a user'),
        ('held-out', spec.held_out, 'share that is held out'),
    ):
        shown = f'{text} (default: %(default)s)'
        parser.add_argument(f'--{name}', type=type(value), default=value, help=shown)
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> None:
    """Generate the interactions."""
    args = parse_args()
    spec = InteractionsSpec(
        num_users=args.users,
        num_items=args.items,
        per_user=args.per_user,
        dimensions=args.dimensions,
        held_out=args.held_out,
        seed=args.seed,
    )
    write_interactions(args.out, spec)
    Console().print(f'Wrote {args.out}: {spec.num_users} users, {spec.num_items} items.')


if __name__ == '__main__':
    sys.exit(main())
