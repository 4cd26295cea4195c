"""Tables for the console, and as Markdown and CSV, the best figures marked."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from mmrank.files import write_atomically, write_csv_atomically

_RULES = {'l': '---', 'r': '---:'}


def console_table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    best: Iterable[Sequence[bool]] | None = None,
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """A table of names, the first column, with figures; cells that are ``best`` are bold."""
    table = Table(title=title and escape(title), caption=caption)
    for index, name in enumerate(header):
        table.add_column(escape(name), justify='right' if index else 'left')
    rows = [[escape(str(cell)) for cell in row] for row in rows]
    for row, marks in zip(rows, best or [[False] * len(header)] * len(rows)):
        table.add_row(*(f'[bold]{cell}[/]' if mark else cell for cell, mark in zip(row, marks)))
    return table


def problem_table(problems: Mapping[str, Iterable[Any]]) -> Table:
    """Problems that a check of :mod:`mmrank.datasets.checks` found, by data set."""
    table = Table(title='Problems', show_lines=True)
    for column in ('', 'data set', 'problem', 'count', 'where', 'fix'):
        table.add_column(column, overflow='fold')
    for name, own in problems.items():
        for problem in own:
            level = '[red]error[/]' if problem.is_error else '[yellow]warning[/]'
            cells = [escape('\n'.join(problem.lines())), escape(problem.fix)]
            table.add_row(level, escape(name), problem.kind, str(problem.count), *cells)
    return table


def markdown_table(
    header: Sequence[str],
    cells: Sequence[Sequence[str | float]],
    best: Sequence[Sequence[bool]] | None = None,
    align: str = '',
) -> list[str]:
    """Lines of a Markdown table of rows of :func:`_cell_text`; ``best`` tells which are bold.

    ``align`` has an ``l`` or ``r`` for each column; by default the first is left, the others right.
    """
    align = align or 'l' + 'r' * (len(header) - 1)
    shown = [[_cell_text(cell) for cell in row] for row in cells]
    if best is not None:
        shown = [
            [f'**{x}**' if mark else x for x, mark in zip(row, marks)]
            for row, marks in zip(shown, best)
        ]
    rows = [[_cell_text(name) for name in header], *shown]
    # No padding: a changed figure then changes one row in a diff.
    head, *body = ['| ' + ' | '.join(row) + ' |' for row in rows]
    rule = '|' + '|'.join(_RULES[letter] for letter in align) + '|'
    return [head, rule, *body]


def _cell_text(cell: str | float) -> str:
    """A cell in one line of Markdown.

    A float has 4 significant digits. In a text a bar, which would end the cell, is escaped, and a
    line break, which would end the row, becomes ``<br>``.
    """
    if isinstance(cell, float):
        return f'{cell:.4g}'
    return '<br>'.join(str(cell).splitlines()).replace('|', '\\|')


def write_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str | float]],
    stem: str | os.PathLike,
    title: str,
    note: str = '',
    align: str = '',
) -> tuple[Path, Path]:
    """Write ``<stem>.md`` and ``<stem>.csv``, each whole or not at all.

    Floats have 4 significant digits in Markdown and all digits in CSV. By default columns of
    numbers are right, columns of text left; see :func:`markdown_table`.
    """
    stem = Path(stem)
    align = align or ''.join('r' if isinstance(cell, int | float) else 'l' for cell in rows[0])
    lines = [f'# {title}', '']
    lines += [note, ''] if note else []
    lines += markdown_table(header, rows, align=align)
    markdown = stem.with_name(stem.name + '.md')
    write_atomically(('\n'.join(lines) + '\n').encode(), markdown)
    table = write_csv_atomically([header, *rows], stem.with_name(stem.name + '.csv'))
    return markdown, table
