"""Tables as Markdown and CSV, the best figures marked."""

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path


def write_number_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str | float]],
    stem: str | os.PathLike,
    title: str,
    note: str = '',
) -> tuple[Path, Path]:
    """Write ``<stem>.md`` and ``<stem>.csv``.

    Args:
        header: Column names.
        rows: Cells; floats are written with 4 significant digits in Markdown
            and with all digits in CSV.
        stem: Path without suffix; its folder is made if needed.
        title: Heading of the Markdown file.
        note: Paragraph under the heading.

    Returns:
        The Markdown and the CSV file.
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    numeric = [isinstance(cell, int | float) for cell in rows[0]]
    lines = [f'# {title}', '']
    lines += [note, ''] if note else []
    lines.append(f'| {" | ".join(map(number_text, header))} |')
    lines.append('|' + '|'.join('---:' if n else '---' for n in numeric) + '|')
    lines += [f'| {" | ".join(map(number_text, row))} |' for row in rows]
    markdown = stem.with_name(stem.name + '.md')
    markdown.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    table = stem.with_name(stem.name + '.csv')
    with table.open('w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return markdown, table


def number_text(cell: str | float) -> str:
    """A cell as Markdown shows it; a bar in it is escaped."""
    if isinstance(cell, float):
        return f'{cell:.4g}'
    return str(cell).replace('|', '\\|')


def best_cells(shown: Sequence[str], values: Sequence[float]) -> list[bool]:
    """Mark the highest values of a column, unless all read the same.

    Args:
        shown: The values as the table shows them; what reads the same as
            the highest is equally good.
        values: Figures, NaN where unknown.

    Returns:
        Whether each is best.
    """
    known = {v: text for v, text in zip(values, shown) if not math.isnan(v)}
    if len(set(known.values())) < 2:
        return [False] * len(values)
    top = known[max(known)]
    return [text == top for text in shown]


def markdown_table(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    best: Sequence[Sequence[bool]],
) -> list[str]:
    """Lines of a Markdown table, the first column to the left.

    Args:
        header: Column names.
        cells: Text, row by row.
        best: Whether each cell is bold.

    Returns:
        The lines.
    """
    lines = [f'| {" | ".join(map(_escape_bar, header))} |']
    lines.append('|---' + '|---:' * (len(header) - 1) + '|')
    for texts, marks in zip(cells, best):
        shown = [
            f'**{_escape_bar(t)}**' if m else _escape_bar(t)
            for t, m in zip(texts, marks)
        ]
        lines.append(f'| {" | ".join(shown)} |')
    return lines


def _escape_bar(text: str) -> str:
    return text.replace('|', '\\|')


def write_csv(path: Path, header: Sequence, rows: Sequence[Sequence]) -> Path:
    """Write a CSV file in UTF-8.

    Args:
        path: File.
        header: Column names.
        rows: Values, unrounded.

    Returns:
        ``path``.
    """
    with path.open('w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path
