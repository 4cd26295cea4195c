"""A table of numbers, written as Markdown to read and CSV to compute with."""

import csv
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
    """A cell as Markdown shows it; a bar in it is no border."""
    if isinstance(cell, float):
        return f'{cell:.4g}'
    return str(cell).replace('|', '\\|')
