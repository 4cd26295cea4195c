"""Figure 1 of the stable AP paper: average precision against AUROC and precision at K.

    python tools/research/theory/stable_ap_metrics.py --out work_dirs/stable_ap_metrics

Draws three rankings of 4 positives and 7 negatives whose figures are those that the paper prints
(figure1.png). No other rankings of up to 7 positives among 5 to 15 samples have them.
"""

import sys
from pathlib import Path

import torch
from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.functional import auroc, average_precision
from mmrank.pictures.figures import new_panels, save

#: Ranks of the positives among the samples; the best sample has rank 1.
RANKINGS = {'f1': (1, 2, 8, 11), 'f2': (1, 3, 8, 9), 'f3': (1, 4, 7, 8)}
SAMPLES = 11
CUTS = (1, 5, 10)


def metrics_of(ranks: tuple[int, ...]) -> dict[str, float]:
    """AP, AUROC and precision at K of a ranking."""
    places = torch.arange(1, SAMPLES + 1)
    is_positive = torch.isin(places, torch.tensor(ranks))
    scores = -places.double()
    found = {'AP': average_precision(scores, is_positive), 'AUROC': auroc(scores, is_positive)}
    found |= {f'P@{k}': is_positive[:k].double().mean() for k in CUTS}
    return {name: float(value) for name, value in found.items()}


def main() -> None:
    args = tool_parser(__doc__, out='work_dirs/stable_ap_metrics').parse_args()
    figure, ((axes,),) = new_panels(1, 1, 8.0, 1.8)
    for row, (name, ranks) in enumerate(RANKINGS.items()):
        colours = ['tab:red' if x in ranks else 'tab:blue' for x in range(1, SAMPLES + 1)]
        axes.scatter(range(1, SAMPLES + 1), [-row] * SAMPLES, c=colours, s=90)
        text = ', '.join(f'{metric} {value:.3f}' for metric, value in metrics_of(ranks).items())
        axes.text(SAMPLES + 1, -row, text, va='center', fontsize=8)
        axes.text(0, -row, name, va='center', ha='right')
        Console().print(f'{name}: {text}')
    axes.set_title('rankings, the best score left, positives red', fontsize=9, loc='left')
    axes.set_ylim(-2.6, 0.6)
    axes.axis('off')
    Console().print(f'wrote {save(figure, Path(args.out, "figure1.png"), dpi=150)}')


if __name__ == '__main__':
    sys.exit(main())
