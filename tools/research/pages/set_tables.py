"""The tables of a folder of records, one for each data set, and the picture of them."""

from pathlib import Path

from mmrank.experiments import many_sets
from mmrank.experiments.records import read_final_rows
from mmrank.experiments.statistics import shown_difference
from mmrank.pictures.seeds import draw_forest
from mmrank.pictures.tables import markdown_table
from plans.loss_names import loss_name

from .blocks import Block


def sets_of(block: Block) -> many_sets.Sets:
    """The sets that are in each folder of a block, with the methods of all."""
    sets: dict = {}
    for folder in block.folders:
        found = many_sets.read_sets(sorted(folder.glob('*.csv')), block.metrics, block.scale)
        sets = {name: {**sets.get(name, {}), **values} for name, values in found.items()}
    return sets


def named_sets(block: Block) -> tuple[many_sets.Sets, str]:
    """The sets of a block with the names of the losses, and the name of ours."""
    sets = sets_of(block)
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
    records = [path for path in block.records if path.stem in sets]
    rows = [row for path in records for row in read_final_rows(path)]
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
