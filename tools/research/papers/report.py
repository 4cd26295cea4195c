"""A report of all tables and figures of the papers."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from mmrank.experiments.records import read_rows
from mmrank.files import write_atomically
from mmrank.pictures.figures import new_grid, save
from mmrank.pictures.tables import markdown_table
from papers.tables import OUT, ROOT, TABLES, PaperTable, figures_of, make, table_of
from plans.config_plan import read_plan


def seconds_of(entry: PaperTable, outcome: Mapping) -> int:
    """CPU seconds of a table: of its trainings, whenever they ran, and commands."""
    sets = outcome.get('sets', ()) if entry.plan else ()
    folders = [read_plan(Path(ROOT, entry.plan), name).out_dir for name in sets]
    rows = [row for folder in folders for row in read_rows(Path(ROOT, folder, 'runs.csv'))]
    return round(outcome.get('seconds', 0) + sum(float(x['seconds'] or 0) for x in rows))


def state_of(entry: PaperTable, size: str, outcome: Mapping) -> str:
    """What became of a table at a size."""
    if not entry.shows_results:
        return 'shows no result'
    if not getattr(entry, size):
        return 'the published size alone'
    status = outcome.get('status')
    if status == 3:
        return f'missing: {"; ".join(outcome["missing"])}'
    return {0: 'made', None: 'not run'}.get(status, f'failed: {status}')


def write_report(size: str, console: Console) -> None:
    """Write what was made at a size."""
    title = f"The papers' tables and figures, {size} size"
    rows = []
    sections = []
    pictures: dict[str, list[Path]] = {}
    # Tables that are made of the same trainings.
    groups: dict[tuple, list[PaperTable]] = {}
    for entry in TABLES.values():
        # What the last run has said.
        file = figures_of(entry, size) / 'outcome.json'
        outcome = json.loads(file.read_text()) if file.is_file() else {}
        state = state_of(entry, size, outcome)
        rows.append([f'`{entry.name}`', entry.title, state, seconds_of(entry, outcome) or ''])
        if (figures_of(entry, size) / 'table.md').is_file() and '/figure' not in entry.name:
            groups.setdefault((entry.plan, *outcome.get('sets', ())), []).append(entry)
        found = sorted(figures_of(entry, size).rglob('*.png'))
        pictures.setdefault(entry.name.partition('/')[0], []).extend(found)
    for (_, *sets), entries in groups.items():
        published = dict.fromkeys(name for x in entries for name in x.published)
        table = table_of(entries[0]._replace(published=[*published]), sets)
        sections += [f'## {", ".join(x.name for x in entries)}', '']
        sections += [*dict.fromkeys(x.note for x in entries if x.note), '', table]
    for paper, found in pictures.items():
        # Images of the data sets have licences of their own; what two names show is drawn once.
        plots = {x.read_bytes(): x for x in found if not x.stem.startswith('sheet')}
        if plots:
            figure, axes = new_grid(len(plots), columns=3, width=5, height=4)
            for axis, picture in zip(axes, plots.values()):
                axis.set_axis_off()
                axis.imshow(np.asarray(Image.open(picture).convert('RGB')))
                axis.set_title(picture.relative_to(OUT / size).with_suffix(''), fontsize=8)
            save(figure, OUT / size / f'{paper}.png', dpi=90)
            sections.append(f'![{paper}]({paper}.png)\n')
    overview = markdown_table(['', 'shows', 'state', 'CPU s'], rows, align='lllr')
    path = OUT / size / 'report.md'
    write_atomically('\n'.join([f'# {title}', '', *overview, '', *sections, '']).encode(), path)
    console.print(f'wrote {path}')


def make_all(size: str, console: Console) -> int:
    """Make all at a size, with a report after each; the first status of a command that failed."""
    statuses = []
    for entry in TABLES.values():
        statuses.append(make(entry, size, (), console)['status'])
        write_report(size, console)
    return next((status for status in statuses if status not in (0, 3)), 0)
