"""The overviews: the recommended method of each table, compared with one other method."""

import math
import os
from pathlib import Path

from mmrank.errors import UserError
from mmrank.experiments import many_sets
from mmrank.experiments.statistics import compare_paired, shown_difference
from mmrank.pictures.names import metric_name
from mmrank.pictures.tables import markdown_table
from plans.loss_names import loss_name

from .blocks import Block, cost_of_records
from .record_tables import read_record, spread
from .set_tables import sets_of

#: Seeds from this one on are for claims.
FIRST_FRESH_SEED = 100
MARK = '†'
CHOSEN = f'{MARK} Settings were chosen on these seeds or folds, so the row is a hint, not a claim.'


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
        first = block.metrics[0]
        if block.folders[0].is_dir():
            sets = sets_of(block)
            methods = next(iter(sets.values()))
            values = {name: many_sets.means(sets, name, first) for name in methods}
            is_claim = True
        else:
            record = read_record(block.record, block.metrics, **block.table_options)
            values = {name: own[first] for name, own in record.values.items()}
            # A plan that tunes does so on validation images, with a seed of its own.
            seeds = map(int, values.get(options.get('ours'), ()))
            is_claim = record.trials > 0 or all(x >= FIRST_FRESH_SEED for x in seeds)
        peer = options.get(against or 'peer') or next(iter(values))
        if not {options.get('ours'), peer} <= {*values}:
            raise UserError(f'{block.record.name} has no ours={options.get("ours")!r} or {peer!r}')
        ours = values[options['ours']]
        theirs = values[peer]
        found = compare_paired(ours, theirs)
        low = found.get('ci_low', -math.inf)
        high = found.get('ci_high', math.inf)
        who = ('level', 'ahead', 'behind')[(low > 0) - (high < 0)]
        link = os.path.relpath(block.page, folder).replace(os.sep, '/')
        title = f'[{options["task" if against else "title"]}]({link})'
        title += '' if is_claim else f' {MARK}'
        row = [title, loss_name(options['ours']), len(ours), metric_name(first), spread(ours)]
        row += [loss_name(peer), spread(theirs), shown_difference(found), who]
        rows.append(row)
    align = 'llrlrlrrl'
    if against:
        # Without the runs and the means.
        header, align, *rows = ([x[i] for i in (0, 1, 3, 5, 7, 8)] for x in (header, align, *rows))
    lines = markdown_table(header, rows, align=''.join(align))
    if any(MARK in row[0] for row in rows):
        lines += ['', CHOSEN]
    return '\n'.join(lines if against else [*lines, '', cost_of_records()])
