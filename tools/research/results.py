"""Write the tables, pictures and overviews of the pages from the records of their trainings.

    python tools/research/results.py            # rewrite all pages
    python tools/research/results.py --check    # say which pages differ from their records

``tools/research/records/NAME.csv`` has a row for each evaluation, as the ``runs.csv`` of
``tools/research/run_seeds.py``: ``method``, ``seed`` (or fold), ``step``, ``commit``,
``seconds``, and a column for each metric. A page shows its last step between two comments, each
method paired by seed with the first, or with ``baseline``::

    <!-- record: NAME mAP AP50 baseline=focal step=400 boxes=pictures/NAME.png -->
    <!-- end of record -->

``baseline=own`` pairs ``NAME, OPTION`` with ``NAME``. ``differences=2`` has a column of differences
for each of the first two metrics, with Holm's correction for each column.

``boxes`` and ``curves`` are pictures that are drawn of it, ``scale=1`` says that the metrics are in
percent already. With ``title=`` and ``ours=``, the method that mmrank recommends, it is a row of
``<!-- overview -->``, up to ``<!-- end of overview -->``, compared with ``peer``, the strongest
other method (by default the baseline). With ``task=`` it is one of the short
``<!-- overview: stock -->`` or ``<!-- overview: peer -->``, if it names the method of that name.

A folder of records, one for each data set, has two tables: the means by set, and what ``ours``
gains over the sets; ``forest`` is their picture. With ``groups=`` it has the gains alone, over the
sets of each group: ``"groups=one class: metal, potholes; others: cards, masks"``::

    <!-- sets: many_sets mAP ours=graded_ap forest=pictures/many_sets.png -->
    <!-- end of sets -->

Settings are chosen on seeds below 100 and claimed on seeds from 100 on, or tuned on validation
images by the plan. A row of an overview whose seeds were used to choose is marked.
"""

import collections
import hashlib
import itertools
import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from scipy import stats

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.experiments import many_sets
from mmrank.experiments.records import FACTS, read_curve_rows, read_final_rows, read_rows, values_of
from mmrank.experiments.statistics import compare_paired, difference_text, shown_difference
from mmrank.files import write_atomically
from mmrank.pictures import names
from mmrank.pictures.figures import new_panels, save
from mmrank.pictures.names import metric_name
from mmrank.pictures.seeds import draw_box_plot, draw_forest
from mmrank.pictures.tables import markdown_table
from plans import loss_names
from plans.loss_names import colours_of, loss_name

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / 'tools/research/records'
COMMENT = re.compile(
    r'^(<!-- (record|overview|sets)(?:: (.*?))? -->\n).*?(^<!-- end of \2 -->)',
    re.DOTALL | re.MULTILINE,
)
PICTURES = ('boxes', 'curves', 'forest')
# Names and colours in pictures: where these change, the pictures do.
LOOKS = [Path(x.__file__) for x in (names, loss_names)]


#: The baseline where each method has its own.
OWN = 'own'
#: Seeds from this one on are for claims.
FIRST_FRESH_SEED = 100
MARK = '†'
CHOSEN = f'{MARK} Settings were chosen on these seeds or folds, so the row is a hint, not a claim.'


class Record(NamedTuple):
    """The rows of a record at a step, and their metrics in percent."""

    rows: list[dict[str, str]]
    values: dict[str, dict[str, dict[str, float]]]  # By method, metric and seed
    trials: int  # Most trials of a method


def read_record(
    path: Path, metrics: list[str], baseline: str = '', step: str = '', scale: str = '100'
) -> Record:
    """Read the last step of each method, or ``step``; ``scale`` is 1 if the record is in percent.

    Raises:
        UserError: If the record is absent or lacks a metric, the baseline or the step.
    """
    if not path.is_file():
        known = ', '.join(sorted(x.stem for x in path.parent.glob('*.csv')))
        raise UserError(f'there is no record {path.stem!r}. Fix: one of {known}')
    rows = [row for row in read_final_rows(path) if row.get('step')]
    last = {}
    for row in sorted(rows, key=lambda row: int(row['step'])):
        last[row['method']] = row['step']
    rows = [row for row in rows if row['step'] == (step or last[row['method']])]
    methods = list(dict.fromkeys(row['method'] for row in rows))
    baseline = (methods or [''])[0] if baseline in ('', OWN) else baseline
    is_whole = all(row.get(metric) for row in rows for metric in metrics)
    if baseline not in methods or not metrics or not is_whole:
        known = sorted({key for row in rows for key, value in row.items() if value} - {*FACTS})
        raise UserError(
            f'{path.name} has no table of {metrics} compared with {baseline!r} at step {step!r}. '
            f'Fix: metrics of {known} that each row has, a baseline of {methods}'
        )
    found = {metric: values_of(rows, metric, float(scale)) for metric in metrics}
    values = {
        name: {metric: found[metric][name] for metric in metrics}
        for name in (baseline, *(name for name in methods if name != baseline))
    }
    tuned = {
        (row['method'], row['settings']) for row in read_rows(path) if row.get('stage') == 'tune'
    }
    trials = collections.Counter(method for method, _ in tuned)
    return Record(rows, values, max(trials.values(), default=0))


def table_of(path: Path, metrics: list[str], differences: str = '1', **options: str) -> str:
    """The table of :func:`read_record` in Markdown, with its commit, cost and power."""
    rows, values, trials = read_record(path, metrics, **options)
    baseline, first = next(iter(values)), metrics[0]
    whose = loss_name(baseline)
    peers = dict.fromkeys(values, baseline)
    if options.get('baseline') == OWN:
        whose = 'the same loss alone'
        peers = {name: name.partition(', ')[0] for name in values}
    peers = {name: peer for name, peer in peers.items() if name != peer}
    order = sorted(values, key=lambda name: -np.mean([*values[name][first].values()]))
    header = ['', 'runs', *map(metric_name, metrics)]
    cells = [
        [loss_name(name), len(values[name][first]), *map(_spread, values[name].values())]
        for name in order
    ]
    best = [[column == 2 and name == order[0] for column in range(len(header))] for name in order]
    for metric in metrics[: int(differences)]:
        header.append(f'{metric_name(metric)} compared with {whose} (95 %)')
        own = {name: values[name][metric] for name in values}
        sure, compared = _sure(own, peers)
        for name, cell, bold in zip(order, cells, best):
            cell.append(difference_text(own[name], own[peers[name]]) if name in peers else '')
            bold.append(name in sure)
    commits = ', '.join(sorted({row['commit'] for row in rows}))
    hours = sum(float(row['seconds']) for row in rows) / 3600
    cost = f'{hours:.1f} core-hours' if hours > 0.1 else f'{60 * hours:.0f} core-minutes'
    note = f'{len(rows)} trainings, {cost}, commit {commits}; '
    note += f'{trials} trials to tune each; ' if trials else ''
    note += _power(values, peers)
    if compared > 1:
        note += f" A bold difference holds after Holm's correction for {compared} comparisons."
    return '\n'.join([*markdown_table(header, cells, best), '', note, ''])


def _spread(values: Mapping[str, float]) -> str:
    numbers = [*values.values()]
    std = f' ± {np.std(numbers, ddof=1):.2f}' if len(numbers) > 1 else ''
    return f'{np.mean(numbers):.2f}{std}'


def _power(values: Mapping[str, Mapping], peers: Mapping[str, str]) -> str:
    """The difference that this many pairs show in four comparisons of five, by a t test."""
    first = next(iter(next(iter(values.values()))))
    spreads: dict[int, list[float]] = {}
    for name, peer in peers.items():
        own, other = (values[x][first] for x in (name, peer))
        shared = own.keys() & other.keys()
        if len(shared) > 1:
            gaps = [own[seed] - other[seed] for seed in shared]
            spreads.setdefault(len(shared), []).append(np.std(gaps, ddof=1))
    if not spreads:
        return 'one run says nothing of the spread.'
    pairs = max(spreads)
    spread = float(np.median(spreads[pairs]))
    needed = stats.t.ppf(0.975, pairs - 1)
    seen = (needed + stats.t.ppf(0.8, pairs - 1)) * spread / math.sqrt(pairs)
    return f'{pairs} pairs tell a difference of {seen:.1f} {first} in four cases of five.'


def _sure(values: Mapping[str, Mapping], peers: Mapping[str, str]) -> tuple[set[str], int]:
    """The methods that differ after Holm's correction, and the number of comparisons."""
    found = {
        name: compare_paired(values[name], values[peer]).get('p_value')
        for name, peer in peers.items()
    }
    ordered = sorted((p, name) for name, p in found.items() if p is not None)
    limits = (0.05 / (len(ordered) - place) for place in range(len(ordered)))
    below = (p < limit for (p, _), limit in zip(ordered, limits))
    held = itertools.takewhile(bool, below)
    return {name for (_, name), _ in zip(ordered, held)}, len(ordered)


class Block(NamedTuple):
    """The comment that begins a table."""

    words: str
    page: Path

    @property
    def record(self) -> Path:
        return RECORDS / f'{shlex.split(self.words)[0]}.csv'

    @property
    def folder(self) -> Path:
        """The folder of the records of several sets, where there is one."""
        return self.record.with_suffix('')

    @property
    def records(self) -> list[Path]:
        """The record, or the records of the folder."""
        if not self.folder.is_dir():
            return [self.record]
        return sorted(self.folder.glob('*.csv'))

    @property
    def metrics(self) -> list[str]:
        return [word for word in shlex.split(self.words)[1:] if '=' not in word]

    @property
    def options(self) -> dict[str, str]:
        """Options of the table, the pictures and the overview."""
        return dict(word.split('=', 1) for word in shlex.split(self.words) if '=' in word)

    @property
    def scale(self) -> float:
        """What the metrics are multiplied by."""
        return float(self.options.get('scale', 100))

    @property
    def table_options(self) -> dict[str, str]:
        """Options of :func:`read_record`."""
        apart = {*PICTURES, 'title', 'task', 'ours', 'peer', 'stock', 'differences'}
        return {key: value for key, value in self.options.items() if key not in apart}


def draw(block: Block, check: bool) -> list[str]:
    """Draw the pictures of a block that are of other rows; their names."""
    content = [block.words.encode(), *(x.read_bytes() for x in (*block.records, *LOOKS))]
    digest = hashlib.sha256(b''.join(content)).hexdigest()[:16]
    others = []
    for kind in block.options.keys() & {*PICTURES}:
        path = block.page.parent / block.options[kind]
        if path.is_file():
            with Image.open(path) as image:
                if image.info.get('record') == digest:
                    continue
        others.append(block.options[kind])
        if not check:
            if kind == 'forest':
                draw_sets(block, path)
            elif kind == 'boxes':
                what = read_record(block.record, block.metrics, **block.table_options)
                draw_boxes(what.values, block.metrics, path)
            else:
                rows = read_curve_rows(block.record)
                draw_curves(rows, block.metrics[0], block.scale, path)
            text = PngInfo()
            text.add_text('record', digest)
            with Image.open(path) as image:
                image.load()
            image.save(path, pnginfo=text, optimize=True)
    return others


def draw_boxes(values: Mapping[str, Mapping], metrics: list[str], path: Path) -> None:
    """Draw a box for each method, with the name and the colour of its loss."""
    shades = dict(zip(values, colours_of([*values])))
    labels = {name: loss_name(name) for name in values}
    draw_box_plot(values, metrics, path, labels=labels, colours=shades)


def draw_curves(rows: Iterable[Mapping[str, str]], metric: str, scale: float, path: Path) -> None:
    """Draw a metric of a record against the iterations: mean and range of the seeds."""
    curves: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        points = curves.setdefault(row['method'], {}).setdefault(int(row['step']), [])
        points.append(scale * float(row[metric]))
    # A method that was measured at its end alone has no curve.
    most = max(map(len, curves.values()))
    curves = {name: points for name, points in curves.items() if len(points) > 1 or most == 1}
    figure, ((axis,),) = new_panels(1, 1, 6.0, 4.0)
    for shade, (name, points) in zip(colours_of(list(curves)), curves.items()):
        steps, values = zip(*sorted(points.items()))
        label = loss_name(name)
        axis.plot(steps, list(map(np.mean, values)), color=shade, marker='.', label=label)
        low, high = zip(*((min(own), max(own)) for own in values))
        axis.fill_between(steps, low, high, color=shade, alpha=0.12)
    axis.set_xlabel('iterations')
    axis.set_ylabel(f'{metric_name(metric)}, mean and range of the seeds')
    axis.legend(fontsize=8, frameon=False)
    save(figure, path)


def named_sets(block: Block) -> tuple[many_sets.Sets, str]:
    """The sets of a block with the names of the losses, and the name of ours."""
    sets = many_sets.read_sets(block.records, block.metrics, block.scale)
    named = {
        name: {loss_name(method): own for method, own in values.items()}
        for name, values in sets.items()
    }
    return named, loss_name(block.options['ours'])


def table_of_sets(block: Block) -> str:
    """The means by set, and what ours gains over the sets, in Markdown."""
    sets, ours = named_sets(block)
    metric = block.metrics[0]
    methods = next(iter(sets.values()))
    lines = markdown_table(['', *methods], many_sets.mean_rows(sets, metric))
    differences = many_sets.difference_rows(*many_sets.compare_sets(sets, ours, metric))
    lines += ['', *markdown_table(many_sets.COLUMNS, differences)]
    rows = [row for path in block.records for row in read_final_rows(path)]
    hours = sum(float(row['seconds']) for row in rows) / 3600
    commits = ', '.join(sorted({row['commit'] for row in rows}))
    return '\n'.join(
        [*lines, '', f'{len(rows)} trainings, {hours:.1f} core-hours, commit {commits}.', '']
    )


def table_of_groups(block: Block) -> str:
    """What ours gains on average over each group of sets, in Markdown."""
    sets, ours = named_sets(block)
    rows = []
    for group in block.options['groups'].split(';'):
        title, names = group.split(':')
        chosen = {name: sets[name] for name in names.replace(' ', '').split(',')}
        _, means = many_sets.compare_sets(chosen, ours, block.metrics[0])
        rows.append([title.strip(), len(chosen), *map(shown_difference, means.values())])
    return '\n'.join([*markdown_table(['', 'sets', *means], rows), ''])


def draw_sets(block: Block, path: Path) -> None:
    """Draw the gains of ours by set."""
    sets, ours = named_sets(block)
    metric = block.metrics[0]
    each, mean = many_sets.compare_sets(sets, ours, metric)
    draw_forest(each, mean, path, ours=ours, metric=metric)


def overview(blocks: list[Block], against: str, folder: Path) -> str:
    """A row for each block with a title: our method, the strongest other one, and who is ahead.

    ``against`` is ``'stock'`` or ``'peer'`` for a short table of the blocks with a ``task`` that
    name such a method.
    """
    header = ['', 'recommended', 'runs', 'measure', 'mean']
    header += ['compared with', 'mean', 'difference (95 %)', '']
    rows = []
    for block in blocks:
        options = block.options
        if ('task' if against else 'title') not in options or (against and against not in options):
            continue
        values, is_claim = _first_metric(block)
        peer = options.get(against or 'peer') or next(iter(values))
        if not {options.get('ours'), peer} <= {*values}:
            raise UserError(f'{block.record.name} has no ours={options.get("ours")!r} or {peer!r}')
        ours = values[options['ours']]
        theirs = values[peer]
        found = compare_paired(ours, theirs)
        low, high = found.get('ci_low', -math.inf), found.get('ci_high', math.inf)
        who = ('level', 'ahead', 'behind')[(low > 0) - (high < 0)]
        link = os.path.relpath(block.page, folder).replace(os.sep, '/')
        title = f'[{options["task" if against else "title"]}]({link})'
        title += '' if is_claim else f' {MARK}'
        measure = metric_name(block.metrics[0])
        row = [title, loss_name(options['ours']), len(ours), measure, _spread(ours)]
        row += [loss_name(peer), _spread(theirs), difference_text(ours, theirs), who]
        rows.append(row)
    align = 'llrlrlrrl'
    if against:
        # Without the runs and the means.
        header, align, *rows = ([x[i] for i in (0, 1, 3, 5, 7, 8)] for x in (header, align, *rows))
    lines = markdown_table(header, rows, align=''.join(align))
    if any(MARK in row[0] for row in rows):
        lines += ['', CHOSEN]
    return '\n'.join(lines if against else [*lines, '', cost_of_records()])


def _first_metric(block: Block) -> tuple[dict[str, Mapping], bool]:
    """The first metric of a block by method and seed, or set; whether its seeds are for claims."""
    first = block.metrics[0]
    if block.folder.is_dir():
        sets = many_sets.read_sets(block.records, block.metrics, block.scale)
        values = {name: many_sets.means(sets, name, first) for name in next(iter(sets.values()))}
        return values, True
    record = read_record(block.record, block.metrics, **block.table_options)
    values = {name: own[first] for name, own in record.values.items()}
    is_fresh = all(int(x) >= FIRST_FRESH_SEED for x in values.get(block.options.get('ours'), ()))
    # A plan that tunes does so on validation images, with a seed of its own.
    return values, is_fresh or record.trials > 0


def cost_of_records() -> str:
    """Trainings and core-hours of all records, the tuning's as far as they were kept."""
    runs, seconds = 0, 0.0
    for path in sorted(RECORDS.rglob('*.csv')):
        # The last step of a run has the time of all of them.
        ends = {
            tuple(row.get(key) for key in ('stage', 'method', 'seed', 'settings')): row
            for row in read_rows(path)
            if row.get('stage') != 'curve'
        }
        runs += len(ends)
        seconds += sum(float(row['seconds'] or 0) for row in ends.values())
    return f'{runs:,} trainings on record, {seconds / 3600:.1f} core-hours.'


def blocks_of(pages: Iterable[Path]) -> list[Block]:
    """The blocks of all pages."""
    return [
        Block(match[3], page)
        for page in pages
        for match in COMMENT.finditer(page.read_text(encoding='utf-8'))
        if match[2] != 'overview'
    ]


def rewritten(page: Path, blocks: list[Block] = (), check: bool = True) -> str:
    """A page with its tables and overviews made again; its pictures, too, unless ``check``."""

    def make(match: re.Match) -> str:
        start, kind, words, end = match.groups()
        if kind == 'record':
            block = Block(words, page)
            count = block.options.get('differences', '1')
            table = table_of(block.record, block.metrics, count, **block.table_options)
        elif kind == 'sets':
            block = Block(words, page)
            has_groups = 'groups' in block.options
            table = table_of_groups(block) if has_groups else table_of_sets(block)
        else:
            table = f'{overview(blocks, words or "", page.parent)}\n'
        if kind != 'overview' and (others := draw(block, check)) and check:
            table = f'{", ".join(others)} of other rows'
        return f'{start}\n{table}\n{end}'

    return COMMENT.sub(make, page.read_text(encoding='utf-8'))


@show_user_errors()
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument(
        '--check', action='store_true', help='change nothing; exit 1 if one differs'
    )
    args = parser.parse_args()
    pages = [
        *sorted(ROOT.glob('docs/pages/**/*.md')),
        *sorted(ROOT.glob('configs/*/README.md')),
        ROOT / 'README.md',
    ]
    differ, blocks = [], blocks_of(pages)
    for page in pages:
        new = rewritten(page, blocks, args.check)
        if new != page.read_text(encoding='utf-8'):
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
