r"""Generate made-up interactions of users and items.

Everything follows from the seed. Use it where no real data set can be had:

    python tools/dataset_converters/make_interactions.py data/interactions

writes OUT/train.csv and OUT/test.csv, which configs/_base_/datasets/synthetic_interactions.py
reads.
"""

import argparse
import sys

from rich.console import Console

from interactions import InteractionsSpec, write_interactions
from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import show_user_errors


def parse_args() -> argparse.Namespace:
    spec = InteractionsSpec()
    parser = tool_parser(
        __doc__,
        users=(spec.num_users, 'users'),
        items=(spec.num_items, 'items, no more than users'),
        seed=(spec.seed, 'seed'),
        per_user=(spec.per_user, 'mean interactions of a user'),
        held_out=(spec.held_out, 'share that is held out'),
    )
    parser.add_argument('out', metavar='OUT', help='folder to write to')
    return parser.parse_args()


@show_user_errors(OSError, ValueError)
def main() -> None:
    options = vars(parse_args())
    out, users, items = (options.pop(name) for name in ('out', 'users', 'items'))
    spec = InteractionsSpec(num_users=users, num_items=items, **options)
    write_interactions(out, spec)
    Console().print(f'Wrote {out}: {spec.num_users} users, {spec.num_items} items.')


if __name__ == '__main__':
    sys.exit(main())
