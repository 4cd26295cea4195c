"""Entities, pairs and mean popularity of a config's data: table 3 of the paper on in-batch bias.

python tools/research/pairs/sizes.py CONFIG.py
"""

import sys

from mmengine.config import Config
from mmengine.registry import DATASETS

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config of a two-tower model')
    args = parser.parse_args()
    pairs = DATASETS.build(Config.fromfile(args.config).train_dataloader.dataset).interactions
    m, n = pairs.shape
    # The mean over all (i, j) is a product of two means.
    popularity = len(pairs) / m * len(pairs) / n
    print(f'{m:,} x {n:,}, {len(pairs):,} pairs, mean popularity {popularity:,.1f}')


if __name__ == '__main__':
    sys.exit(main())
