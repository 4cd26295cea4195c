"""Queries with the images found for them, right and wrong ones framed."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, ImageOps

from mmrank.visualization.figures import fit_text, fit_two_lines
from research.retrieval.neighbours import Neighbour, Neighbours

# Okabe and Ito's bluish green and vermilion, which differ for any colour vision; the dashes and the
# marks show the same without colour.
_RIGHT, _WRONG, _QUERY = '#009E73', '#D55E00', '#555555'
_BACKGROUND = 242
# Pixels of an image's side, and inches of it on the sheet.
_SIDE, _CELL = 192, 1.0
# Inches below an image for its text, between query and images, above all.
_TEXT, _GAP, _TOP = 0.4, 0.3, 0.62
# Inches for the text left of a query.
_LEFT = 1.6
# Inches between the rows of one query and those of the next.
_APART = 0.22
_DPI = 140


def draw_retrieval_sheet(
    rows: Sequence[Neighbours], path: str | os.PathLike, title: str = ''
) -> Path:
    """Draw a sheet: a row a query, the query first, the best image next.

    Right images have a solid frame and a tick, wrong ones a dashed frame, a cross and the name of
    their class. Scores are below.

    Args:
        rows: Queries, at least one; several rows may show one query by
            several models.
        path: Image file to write; its folder is made if needed.
        title: Text above.

    Returns:
        ``path``.

    Raises:
        ValueError: If there is no row.
        FileNotFoundError: If an image file is missing.
    """
    if not rows:
        raise ValueError('draw_retrieval_sheet needs at least one query')
    columns = max(len(row.found) for row in rows)
    pitch = _CELL + 0.08
    width = _LEFT + _CELL + _GAP + max(columns, 4) * pitch
    tops = _row_tops(rows)
    height = tops[-1] + _CELL + _TEXT
    figure = Figure(figsize=(width, height), facecolor='white')
    FigureCanvasAgg(figure)
    several = len({row.model for row in rows}) > 1
    figure.text(0.08 / width, 1 - 0.2 / height, title, fontsize=10, va='center')
    _draw_key(figure, width, height)
    pictures: dict[Path, np.ndarray] = {}

    def place(column: float, top: float) -> Axes:
        bottom = height - top - _CELL
        return figure.add_axes((column / width, bottom / height, _CELL / width, _CELL / height))

    for top, row in zip(tops, rows):
        axis = place(_LEFT, top)
        _show(axis, row.path, pictures)
        _frame(axis, _QUERY, '-', 1.0)
        _describe_query(axis, row, several)
        for number, neighbour in enumerate(row.found):
            axis = place(_LEFT + _CELL + _GAP + number * pitch, top)
            _show(axis, neighbour.path, pictures)
            _describe(axis, neighbour)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    return path


def _row_tops(rows: Sequence[Neighbours]) -> list[float]:
    """Inches from above; rows of one query are grouped."""
    tops, top = [], _TOP
    for index, row in enumerate(rows):
        follows = index > 0 and row.path == rows[index - 1].path
        next_follows = index + 1 < len(rows) and rows[index + 1].path == row.path
        if index > 0 and not follows and next_follows:
            top += _APART
        tops.append(top)
        top += _CELL + _TEXT
    return tops


def _draw_key(figure: Figure, width: float, height: float) -> None:
    """Explain the frames, to the right of the title's line."""
    y = 1 - 0.46 / height
    figure.text((_LEFT + 0.02) / width, y, 'query', fontsize=8, va='center')
    x = _LEFT + _CELL + _GAP
    for text, colour, line in (
        ('✓ same class', _RIGHT, '-'),
        ('✗ another class', _WRONG, (0, (2, 1.4))),
    ):
        figure.add_artist(
            Rectangle(
                (x / width, y - 0.06 / height),
                0.2 / width,
                0.12 / height,
                fill=False,
                edgecolor=colour,
                linestyle=line,
                linewidth=1.6,
                transform=figure.transFigure,
            )
        )
        figure.text((x + 0.27) / width, y, text, fontsize=8, va='center')
        x += 1.35
    figure.text(x / width, y, 'similarity below', fontsize=8, va='center', color='#555')


def _show(axis: Axes, path: Path, pictures: dict[Path, np.ndarray]) -> None:
    if path not in pictures:
        pictures[path] = _read(path)
    axis.imshow(pictures[path], interpolation='nearest')
    axis.set_axis_off()


def _read(path: Path) -> np.ndarray:
    """An image fitted into a square, as a person would see it."""
    if not path.is_file():
        raise FileNotFoundError(
            f'image {str(path)!r} does not exist. Fix: pass the folder that '
            'the paths of the features start from (--image-root).'
        )
    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image).convert('RGB')
        image = ImageOps.contain(image, (_SIDE, _SIDE))
    square = Image.new('RGB', (_SIDE, _SIDE), (_BACKGROUND,) * 3)
    corner = (_SIDE - image.width) // 2, (_SIDE - image.height) // 2
    square.paste(image, corner)
    return np.asarray(square)


def _frame(axis: Axes, colour: str, line, width: float) -> None:
    axis.add_patch(
        Rectangle(
            (0, 0),
            1,
            1,
            transform=axis.transAxes,
            fill=False,
            edgecolor=colour,
            linestyle=line,
            linewidth=width,
            clip_on=False,
        )
    )


def _describe_query(axis: Axes, row: Neighbours, with_model: bool) -> None:
    lines = [
        '' if math.isnan(row.average_precision) else f'AP {100 * row.average_precision:.1f}',
        f'{row.num_positives:,} in gallery',
    ]
    if with_model:
        lines.insert(0, fit_text(row.model, _LEFT - 0.2, 8))
    name = fit_two_lines(row.label, _LEFT - 0.2, 8, 'bold')
    axis.text(
        -0.08,
        0.97,
        '\n'.join(name),
        transform=axis.transAxes,
        ha='right',
        va='top',
        fontsize=8,
        weight='bold',
        linespacing=1.2,
    )
    axis.text(
        -0.08,
        0.94 - 0.14 * len(name),
        '\n'.join(lines),
        transform=axis.transAxes,
        ha='right',
        va='top',
        fontsize=8,
        linespacing=1.4,
    )


def _describe(axis: Axes, neighbour: Neighbour) -> None:
    right = neighbour.is_right
    colour = _RIGHT if right else _WRONG
    _frame(axis, colour, '-' if right else (0, (2, 1.4)), 2.2)
    score = neighbour.score
    # Dot products may be large.
    number = f'{score:.3f}' if abs(score) < 10 else f'{score:.4g}'
    text = f'{"✓" if right else "✗"} {number}'
    axis.text(
        0.5, -0.05, text, transform=axis.transAxes, ha='center', va='top', fontsize=8, color=colour
    )
    if not right:
        axis.text(
            0.5,
            -0.19,
            fit_text(neighbour.label, _CELL + 0.03, 6.5),
            transform=axis.transAxes,
            ha='center',
            va='top',
            fontsize=6.5,
            color='#555555',
        )
