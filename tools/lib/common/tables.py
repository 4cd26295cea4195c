"""Tables for the console."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table


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
