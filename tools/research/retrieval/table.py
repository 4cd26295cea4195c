"""The table of a retrieval report: Markdown, CSV and console."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from mmrank.files import write_atomically, write_csv_atomically
from mmrank.visualization.tables import best_cells, markdown_table
from research.retrieval.result import RetrievalResult

_TITLES = {'mAP': 'mAP', 'R_precision': 'R-Precision', 'MAP_at_R': 'MAP@R'}


def metric_title(name: str) -> str:
    """Name of a metric for people: ``'R@10'`` for ``'recall@10'``.

    A sign says what is approximate: ``'≈R@10'``.
    """
    return _TITLES.get(
        name,
        name.replace('approximate_recall@', '≈R@')
        .replace('recall@', 'R@')
        .replace('neighbours_found@', 'neighbours found, of '),
    )


def retrieval_cells(
    results: Sequence[RetrievalResult],
) -> tuple[list[str], list[list[str]], list[list[bool]]]:
    """Text of the table in percent, and which cells are best.

    Args:
        results: The models, all of one test set.

    Returns:
        The header, the cells and whether each is best, row by row.
    """
    header = ['method']
    columns = [[r.name for r in results]]
    marks = [[False] * len(results)]
    for name in results[0].metrics:
        values = [r.metrics[name] for r in results]
        shown = [f'{100 * v:.2f}' for v in values]
        header.append(metric_title(name))
        columns.append(shown)
        marks.append(best_cells(shown, values))
    return (header, [list(row) for row in zip(*columns)], [list(row) for row in zip(*marks)])


def describe_test_set(result: RetrievalResult) -> str:
    """Describe in a sentence what was searched."""
    text = f'{result.queries:,} queries in a gallery of '
    text += f'{result.gallery_size:,}'
    if result.is_approximate:
        text += (
            ', searched by an approximate index: ≈R@K misses what it misses, '
            'and mAP is not computed'
        )
    elif not result.has_ranking:
        text += ', searched by an exact index; mAP is not computed'
    if result.queries_without_positive:
        text += f'; {result.queries_without_positive:,} queries without a positive are left out'
    return text + '.'


def rich_retrieval(results: Sequence[RetrievalResult]) -> Table:
    """The table for the console, in percent; the best is bold.

    Args:
        results: The models.

    Returns:
        The table.
    """
    header, cells, best = retrieval_cells(results)
    table = Table(title='retrieval, %')
    table.add_column(header[0])
    for title in header[1:]:
        table.add_column(title, justify='right')
    for row, marks in zip(cells, best):
        table.add_row(
            *(
                f'[bold]{escape(text)}[/]' if mark else escape(text)
                for text, mark in zip(row, marks)
            )
        )
    return table


def write_retrieval_table(
    results: Sequence[RetrievalResult], folder: str | os.PathLike, title: str = 'Retrieval'
) -> list[Path]:
    """Write ``retrieval.md`` and ``retrieval.csv``.

    Markdown has percentages with two decimals, CSV the unrounded figures in [0, 1].

    Args:
        results: The models, at least one.
        folder: Where to write; made if needed.
        title: Heading of the Markdown file.

    Returns:
        The two files.
    """
    folder = Path(folder)
    lines = [f'# {title}', '', *markdown_table(*retrieval_cells(results)), '']
    lines.append(f'Percent. {describe_test_set(results[0])}')
    markdown = folder / 'retrieval.md'
    write_atomically(('\n'.join(lines) + '\n').encode(), markdown)
    table = write_csv_atomically(
        [
            ['method', *results[0].metrics, 'queries', 'gallery_size'],
            *([r.name, *r.metrics.values(), r.queries, r.gallery_size] for r in results),
        ],
        folder / 'retrieval.csv',
    )
    return [markdown, table]
