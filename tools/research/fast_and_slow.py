"""Is the fast answer the slow one's? The frozen comparison of losses against whole trainings.

    python tools/benchmarks/run_seeds.py --plan tools/research/detectors/real_heads.yaml --set cards
    python tools/research/fast_and_slow.py cards --budget 4m

The first command trains whole networks; the second compares the same losses by
tools/compare_losses.py, on the config of the first method, and writes
tools/research/records/frozen_heads_SET.csv. detectors/fast_and_slow.yaml has the sets. results.py
writes the table of all of them to its page.
"""

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from scipy import stats

from mmrank.cli.compare import method_names
from mmrank.cli.config_options import load_config, train_or_test_parser
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.experiments.plan import read_plan
from mmrank.experiments.records import read_final_rows, values_of, write_rows
from mmrank.experiments.statistics import difference_text
from mmrank.own_data.answer import answer
from mmrank.pictures.names import loss_name
from mmrank.pictures.tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / 'tools/research/records'
PLAN = Path(__file__).parent / 'detectors/fast_and_slow.yaml'
METRICS = ('coco/bbox_mAP', 'ranking/mAP')


class Compared(NamedTuple):
    """A set: values in percent by method and seed, of whole trainings and of frozen heads."""

    title: str
    default: str
    ours: str
    slow: dict[str, dict[str, float]]
    fast: dict[str, dict[str, float]]

    @property
    def followed(self) -> str:
        """The loss that the fast comparison recommends."""
        values = {name: {'mAP': found} for name, found in self.fast.items()}
        return answer(values, 'mAP', self.ours)[0]

    def choices(self) -> tuple[str, str, str, str]:
        """The fast answer, its highest mean, the stock loss and ours."""
        means = dict(zip(self.fast, _means(self.fast)))
        return self.followed, max(means, key=means.get), self.default, self.ours

    def correlations(self) -> tuple[float, float]:
        """Spearman's and Kendall's rank correlation of the means."""
        slow, fast = (_means(x) for x in (self.slow, self.fast))
        return stats.spearmanr(slow, fast).statistic, stats.kendalltau(slow, fast).statistic

    def lost(self, method: str) -> float:
        """What the whole trainings of a method are behind the best one."""
        return max(_means(self.slow)) - float(np.mean([*self.slow[method].values()]))


def _means(values: dict[str, dict[str, float]]) -> list[float]:
    return [float(np.mean([*own.values()])) for own in values.values()]


def _read(path: Path, methods: list[str]) -> dict[str, dict[str, float]]:
    rows = read_final_rows(path)
    metric = next(name for name in METRICS if name in rows[0])
    # mmdet measures fractions, mmrank percent.
    values = values_of(rows, metric, 100.0 if metric.startswith('coco') else 1.0)
    return {method: values[method] for method in methods}


def read_sets() -> list[Compared]:
    """The sets of which both records are there."""
    found = []
    for name, spec in yaml.safe_load(PLAN.read_text())['sets'].items():
        paths = [RECORDS / f'{spec["record"]}.csv', RECORDS / f'frozen_heads_{name}.csv']
        if all(path.is_file() for path in paths):
            methods = [*spec['losses']]
            slow, fast = (_read(path, methods) for path in paths)
            found.append(Compared(spec['title'], methods[0], spec['ours'], slow, fast))
    return found


def chance_of(mean: float, losses: Sequence[int]) -> float:
    """Chance that random orders of so many losses a set correlate by ``mean`` or more."""
    sums = np.zeros(1)
    for number in losses:
        orders = itertools.permutations(range(number))
        one = [stats.spearmanr(range(number), order).statistic for order in orders]
        sums = np.add.outer(sums, one).ravel()
    return float(np.mean(sums / len(losses) >= mean - 1e-9))


def table() -> str:
    """The table of all sets in Markdown, and what it can tell."""
    sets = read_sets()
    header = ['', 'whole trainings', 'frozen comparison', 'Spearman (Kendall)']
    header += ['lost by the fast answer', 'by its highest mean', 'by the stock loss', 'by ours']
    header.append('fast answer compared with stock')
    rows = []
    for item in sets:
        spearman, kendall = item.correlations()
        seeds = len(item.slow[item.default])
        rows.append(
            [
                f'{item.title} ({seeds} {"seeds" if seeds > 1 else "seed"})',
                *(_order(item.slow), _order(item.fast)),
                f'{spearman:+.1f} ({kendall:+.1f})',
                *(f'{item.lost(x):.2f}' for x in item.choices()),
                difference_text(item.slow[item.followed], item.slow[item.default]),
            ]
        )
    mean = float(np.mean([item.correlations()[0] for item in sets]))
    lost = np.array([[x.lost(y) for y in x.choices()] for x in sets])
    rows.append(['mean', '', '', f'{mean:+.2f}', *(f'{value:.2f}' for value in lost.mean(0)), ''])
    chance = chance_of(mean, [len(x.slow) for x in sets])
    note = f'{len(sets)} random orders would agree as well as these ({mean:+.2f}) or better in '
    note += f'{chance:.0%} of all cases.'
    return '\n'.join([*markdown_table(header, rows, align='lllrrrrrr'), '', note])


def _order(values: dict[str, dict[str, float]]) -> str:
    """The losses with their means, best first."""
    means = dict(zip(values, _means(values)))
    ordered = sorted(means, key=lambda name: -means[name])
    return ', '.join(f'{loss_name(name)} {means[name]:.2f}' for name in ordered)


def own_config(spec: dict, out: Path) -> Path:
    """The config of the first method with all its options, written whole."""
    name = next(iter(spec['losses']))
    plan = read_plan(ROOT / spec['plan'], spec['set'])
    method = next(x for x in plan.methods if x.name == name)
    options = {**method.cfg_options, **spec.get('cfg_options', {})}
    words = [method.config]
    if options:
        words += ['--cfg-options', *(f'{key}={value}' for key, value in options.items())]
    cfg = load_config(train_or_test_parser().parse_args(words))
    out.mkdir(parents=True, exist_ok=True)
    path = out / 'own.py'
    cfg.dump(path)
    return path


def compare(name: str, budget: str) -> Path:
    """Run the frozen comparison of a set; return its record."""
    spec = yaml.safe_load(PLAN.read_text())['sets'].get(name)
    if spec is None:
        raise UserError(f'SET {name!r} is not in {PLAN.name}. Fix: name one of its sets')
    out = Path('work_dirs/frozen_heads') / name
    config = own_config(spec, out)
    losses = spec['losses']
    command = [sys.executable, str(ROOT / 'tools/compare_losses.py'), str(config)]
    command += ['--out', str(out / 'comparison'), '--budget', budget, '--losses', *losses.values()]
    if status := subprocess.run(command, check=False).returncode:
        sys.exit(status)
    rows = read_final_rows(out / 'comparison/trainings/runs.csv')
    texts = method_names([*losses.values()])
    names = {text: name for name, text in losses.items()}
    for row in rows:
        row['method'] = names[texts[row['method']]]
    return write_rows(RECORDS / f'frozen_heads_{name}.csv', rows, rows[0])


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__, budget=('4m', 'see compare_losses.py'))
    parser.add_argument('set', metavar='SET')
    args = parser.parse_args()
    print(f'wrote {compare(args.set, args.budget)}')


if __name__ == '__main__':
    main()
