"""Write the tables of the pages from the records of their trainings.

    python tools/research/results.py            # rewrite the tables of all pages
    python tools/research/results.py --check    # say which tables differ from their records

``tools/research/records/NAME.csv`` has a row for each evaluation: ``method``, ``seed`` (or fold),
``step``, ``commit``, ``seconds``, and a column for each metric. A page shows its last step between
two comments, each method paired by seed with the first, or with ``baseline``::

    <!-- record: NAME mAP AP50 baseline=focal step=400 -->
    <!-- end of record -->
"""

import argparse
import csv
import math
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.visualization.tables import markdown_table
from research.seeds.statistics import compare_paired

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / 'tools/research/records'
#: Not metrics.
FACTS = ('method', 'seed', 'step', 'commit', 'seconds', 'settings')
BLOCK = re.compile(r'(?m)^(<!-- record: (.*?) -->\n).*?(^<!-- end of record -->)', re.DOTALL)


def table_of(path: Path, metrics: list[str], baseline: str = '', step: str = '') -> str:
    """The table of a record in Markdown, with its commit, cost and power.

    Raises:
        UserError: If the record is absent or lacks a metric, the baseline or the step.
    """
    if not path.is_file():
        known = ', '.join(sorted(x.stem for x in path.parent.glob('*.csv')))
        raise UserError(f'there is no record {path.stem!r}. Fix: one of {known}')
    rows = list(csv.DictReader(path.read_text(encoding='utf-8').splitlines()))
    step = step or str(max(int(row['step']) for row in rows))
    rows = [row for row in rows if row['step'] == step]
    methods = list(dict.fromkeys(row['method'] for row in rows))
    known = [x for x in (rows or [{}])[0] if x not in FACTS]
    baseline = baseline or (methods or [''])[0]
    if not rows or baseline not in methods or not metrics or not {*metrics} <= {*known}:
        raise UserError(
            f'{path.name} has no table of {metrics} beside {baseline!r} at step {step}. Fix: '
            f'metrics of {known}, a baseline of {methods}'
        )
    values = {
        name: {
            metric: {r['seed']: 100 * float(r[metric]) for r in rows if r['method'] == name}
            for metric in metrics
        }
        for name in methods
    }
    first = metrics[0]
    order = sorted(methods, key=lambda name: -np.mean([*values[name][first].values()]))
    header = ['', 'runs', *metrics, f'{first} beside {baseline} (95 %)']
    cells = [
        [
            *(name, len(values[name][first]), *map(_spread, values[name].values())),
            _beside(values[name][first], values[baseline][first], name == baseline),
        ]
        for name in order
    ]
    best = [[name == order[0] and column == 2 for column in range(len(header))] for name in order]
    commits = ', '.join(sorted({row['commit'] for row in rows}))
    hours = sum(float(row['seconds']) for row in rows) / 3600
    cost = f'{hours:.1f} core-hours' if hours > 0.1 else f'{60 * hours:.0f} core-minutes'
    note = f'{len(rows)} trainings, {cost}, commit {commits}; '
    note += _power(values, baseline)
    return '\n'.join([*markdown_table(header, cells, best), '', note, ''])


def _spread(values: Mapping[str, float]) -> str:
    numbers = [*values.values()]
    std = f' ± {np.std(numbers, ddof=1):.2f}' if len(numbers) > 1 else ''
    return f'{np.mean(numbers):.2f}{std}'


def _beside(values: Mapping, baseline: Mapping, is_baseline: bool) -> str:
    found = compare_paired(values, baseline)
    if is_baseline or not found['pairs']:
        return ''
    interval = ' [{ci_low:+.2f}, {ci_high:+.2f}]' if 'ci_low' in found else ''
    return ('{difference:+.2f}' + interval).format(**found)


def _power(values: Mapping[str, Mapping], baseline: str) -> str:
    """The difference that this many pairs show in four comparisons of five, by a t test."""
    first = next(iter(values[baseline]))
    spreads: dict[int, list[float]] = {}
    for name, own in values.items():
        shared = own[first].keys() & values[baseline][first].keys()
        if name != baseline and len(shared) > 1:
            gaps = [own[first][seed] - values[baseline][first][seed] for seed in shared]
            spreads.setdefault(len(shared), []).append(np.std(gaps, ddof=1))
    if not spreads:
        return 'one run says nothing of the spread.'
    pairs = max(spreads)
    spread, needed = float(np.median(spreads[pairs])), stats.t.ppf(0.975, pairs - 1)
    seen = (needed + stats.t.ppf(0.8, pairs - 1)) * spread / math.sqrt(pairs)
    return f'{pairs} pairs tell a difference of {seen:.1f} {first} in four cases of five.'


def rewritten(text: str) -> str:
    """A page with its tables made again."""

    def make(match: re.Match) -> str:
        name, *words = shlex.split(match[2])
        options = dict(word.split('=', 1) for word in words if '=' in word)
        metrics = [word for word in words if '=' not in word]
        return f'{match[1]}\n{table_of(RECORDS / f"{name}.csv", metrics, **options)}\n{match[3]}'

    return BLOCK.sub(make, text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--check', action='store_true', help='change nothing; exit 1 if one differs'
    )
    args = parser.parse_args()
    pages = [
        *ROOT.glob('docs/pages/**/*.md'),
        *ROOT.glob('configs/*/README.md'),
        ROOT / 'README.md',
    ]
    differ = []
    for page in pages:
        old = page.read_text(encoding='utf-8')
        new = rewritten(old)
        if new != old:
            differ.append(page.relative_to(ROOT).as_posix())
            if not args.check:
                write_atomically(new.encode(), page)
    if args.check and differ:
        sys.exit(
            f'{", ".join(differ)} differ from their records. Fix: python tools/research/results.py'
        )
    print(
        f'{len(pages)} pages: {len(differ) or "no"} tables {"differ" if args.check else "written"}'
    )


if __name__ == '__main__':
    main()
