"""Table 3 and figure 3 of the paper on in-batch bias.

python tools/research/pairs/in_batch_tables.py sizes CONFIG.py
python tools/research/pairs/in_batch_tables.py ratios work_dirs/in_batch/runs.csv
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from mmengine.config import Config
from mmengine.registry import DATASETS

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors


def sizes(config: str) -> str:
    """Write the entities, the training pairs and their mean popularity of a config's data."""
    pairs = DATASETS.build(Config.fromfile(config).train_dataloader.dataset).interactions
    m, n = pairs.shape
    # The mean over all (i, j) is a product of two means.
    popularity = len(pairs) / m * len(pairs) / n
    return f'{m:,} x {n:,}, {len(pairs):,} pairs, mean popularity {popularity:,.1f}'


def draw_ratios(runs: str, metric: str, out: Path) -> None:
    """Draw the mean of a metric over seeds against the batch ratio, a line for each loss."""
    rows = pd.read_csv(runs)
    rows = rows[rows['stage'] == 'final']
    names = rows['method'].str.extract(r'(?P<loss>.+)_(?P<ratio>1e-\d)$')
    rows = rows.assign(loss=names['loss'], ratio=names['ratio'].astype(float))
    means = rows.groupby(['ratio', 'loss'])[metric].mean().unstack()
    figure, axis = plt.subplots(figsize=(5, 4), layout='constrained')
    means.plot(ax=axis, logx=True, marker='o', xlabel='batch ratio', ylabel=metric)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    plt.close(figure)


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    what = parser.add_subparsers(dest='what', required=True)
    what.add_parser('sizes').add_argument('config', help='config of a two-tower model')
    ratios = what.add_parser('ratios')
    ratios.add_argument('runs', help='runs.csv of a set of papers/in_batch/losses.yaml')
    ratios.add_argument('--metric', default='top_k/precision@5')
    ratios.add_argument('--out', type=Path, default=Path('work_dirs/batch_ratios.png'))
    args = parser.parse_args()
    if args.what == 'sizes':
        print(sizes(args.config))
        return
    draw_ratios(args.runs, args.metric, args.out)
    print(f'wrote {args.out}')


if __name__ == '__main__':
    sys.exit(main())
