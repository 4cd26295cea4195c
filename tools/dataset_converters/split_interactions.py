r"""Hold a part of each user's interactions out for the test.

    python tools/dataset_converters/split_interactions.py ratings.dat data/movielens-1m \
        --separator :: --min-rating 4

writes OUT/train.dat and OUT/test.dat. Lines stay as they are, so the config reads them in the form
of the source; ratings below --min-rating are in neither file. Every user and every item keeps a
training line.
"""

import sys

from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.datasets.interactions.pair_files import split_file
from mmrank.errors import show_user_errors


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(
        __doc__,
        share=(0.1, "of each user's lines to hold out"),
        separator=(',', "'::' as in MovieLens, or a tab"),
        seed=0,
    )
    add = parser.add_argument
    add('file', help='user,item[,rating][,timestamp] lines')
    add('out', metavar='OUT', help='folder to write to')
    add('--min-rating', type=float, help='keep ratings from this on (default: all lines)')
    args = parser.parse_args()
    files = split_file(args.file, args.out, args.share, args.min_rating, args.separator, args.seed)
    for path in files:
        Console().print(f'Wrote {path}', highlight=False)


if __name__ == '__main__':
    sys.exit(main())
