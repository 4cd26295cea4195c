"""The images of the largest and the smallest temperatures."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrank.visualization.figures import fit_text
from mmrank.visualization.temperatures.plots import COLD, HOT

# Inches of an image's side, of its text, of a heading, between images.
_CELL, _TEXT, _HEADING, _GAP = 0.72, 0.27, 0.34, 0.06
_DPI = 120


@dataclass(frozen=True)
class WarmImage:
    """One image of the sheet.

    Attributes:
        image: (H, W, 3) uint8 in RGB.
        tau: Its temperature.
        label: What it shows; '' where that is not known.
    """

    image: np.ndarray
    tau: float
    label: str


def draw_temperature_sheet(
    hot: Sequence[WarmImage],
    cold: Sequence[WarmImage],
    path: str | os.PathLike,
    title: str = '',
    columns: int = 10,
) -> Path:
    """Draw the hot images above the cold ones.

    Args:
        hot: The hottest first.
        cold: The coldest first.
        path: Image file to write; its folder is made if needed.
        title: Text above.
        columns: Images in a row.

    Returns:
        ``path``.

    Raises:
        ValueError: If there is no image.
    """
    if not hot and not cold:
        raise ValueError('draw_temperature_sheet needs at least one image')
    blocks = [(hot, HOT, 'largest temperatures'), (cold, COLD, 'smallest temperatures')]
    blocks = [block for block in blocks if block[0]]
    rows = [-(-len(images) // columns) for images, *_ in blocks]
    pitch = _CELL + _TEXT
    top = 0.3 if title else 0.05
    height = top + sum(_HEADING + n * pitch for n in rows) + 0.05
    width = columns * (_CELL + _GAP) + 0.2
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    if title:
        figure.text(0.1 / width, 1 - 0.2 / height, title, fontsize=10)
    y = top
    for (images, colour, heading), count in zip(blocks, rows):
        figure.text(
            0.1 / width, 1 - (y + 0.23) / height, heading, fontsize=9, color=colour, weight='bold'
        )
        y += _HEADING
        for index, item in enumerate(images):
            row, column = divmod(index, columns)
            left = 0.1 + column * (_CELL + _GAP)
            bottom = height - y - row * pitch - _CELL
            axis = figure.add_axes((left / width, bottom / height, _CELL / width, _CELL / height))
            axis.imshow(item.image, interpolation='nearest')
            axis.set_xticks([])
            axis.set_yticks([])
            for side in axis.spines.values():
                side.set(color=colour, linewidth=1.5)
            text = f'{item.tau:.3g}'
            if item.label:
                text += '\n' + fit_text(item.label, _CELL + 0.02, 6)
            axis.text(
                0.5,
                -0.04,
                text,
                transform=axis.transAxes,
                ha='center',
                va='top',
                fontsize=6,
                linespacing=1.1,
            )
        y += count * pitch
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    return path
