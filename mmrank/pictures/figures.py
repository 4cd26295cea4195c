"""Shared parts of figures: text and labels that fit, panels."""

import math
import os
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text
from matplotlib.textpath import TextPath
from PIL import Image

from mmrank.files import write_atomically


def shorten(name: str, length: int) -> str:
    """Shorten a name in its middle, where names of a series rarely differ, to 3 or more letters."""
    if len(name) <= length:
        return name
    end = (length - 1) // 2
    return f'{name[: length - 1 - end]}…{name[-end:]}'


def _drawable(text: str) -> str:
    known = get_font(findfont(FontProperties())).get_charmap()
    return ''.join(x if ord(x) in known or x == '\n' else ascii(x)[1:-1] for x in text)


@lru_cache(maxsize=4096)
def _text_width(text: str, size: float, weight: str) -> float:
    """Width in inches of one line, of ``size`` points and ``'normal'`` or ``'bold'`` weight."""
    if not text.strip():
        return 0.0  # no outline to measure
    font = FontProperties(weight=weight)
    text = _drawable(text).replace('$', r'\$')
    return TextPath((0, 0), text, size=size, prop=font).get_extents().x1 / 72


def fit_text(text: str, width: float, size: float, weight: str = 'normal') -> str:
    """Shorten a line in its middle to three characters or more until it fits a width in inches."""
    shown = text
    length = len(text)
    while length > 3 and _text_width(shown, size, weight) > width:
        length -= 1
        shown = shorten(text, length)
    return shown


def fit_two_lines(text: str, width: float, size: float) -> list[str]:
    """One or two lines that fit a width, broken at the space nearest the middle of the text."""
    spaces = [i for i, c in enumerate(text) if c == ' ']
    if _text_width(text, size, 'normal') <= width or not spaces:
        return [fit_text(text, width, size)]
    middle = min(spaces, key=lambda i: abs(2 * i - len(text)))
    halves = text[:middle], text[middle + 1 :]
    return [fit_text(half, width, size) for half in halves]


_SAVED_COLOURS = 96


def new_panels(
    rows: int, columns: int, width: float = 3.6, height: float = 2.8
) -> tuple[Figure, np.ndarray]:
    """A figure and its (rows, columns) axes, without a display."""
    figure = Figure(figsize=(width * columns, height * rows), layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        axis.xaxis.label.set_size(9)
        axis.yaxis.label.set_size(9)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.tick_params(labelsize=8)
        axis.spines[['top', 'right']].set_visible(False)
    return figure, axes


def new_grid(
    panels: int, columns: int, width: float = 3.6, height: float = 2.8
) -> tuple[Figure, np.ndarray]:
    """A figure and its (panels,) axes, row by row; the rest of the last row stays empty."""
    figure, axes = new_panels(math.ceil(panels / columns), columns, width, height)
    for axis in axes.ravel()[panels:]:
        axis.set_axis_off()
    return figure, axes.ravel()[:panels]


def legend_above(figure: Figure, axis: Axes, columns: int) -> None:
    """The legend of one panel, for all of them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc='outside upper center', ncols=columns, fontsize=8, frameon=False
    )


def save(
    figure: Figure,
    path: str | os.PathLike,
    dpi: int = 130,
    *,
    has_formulas: bool = False,
    has_photos: bool = False,
) -> Path:
    """Write the figure as a PNG; its folder is made if needed.

    Names are drawn as they are: ``$`` begins no formula, unless the figure ``has_formulas``, and
    what the font lacks is its number. A figure without photos is small: of few colours.
    """
    if not has_formulas:
        for text in figure.findobj(Text):
            if text.get_text():  # a label of an automatic tick is empty until it is drawn
                text.set(parse_math=False, text=_drawable(text.get_text()))
    written = BytesIO()
    # A legend of several lines pushes the titles of a sheet beyond the edge.
    figure.savefig(written, dpi=dpi, format='png', bbox_inches='tight' if has_photos else None)
    if not has_photos:
        # Few colours suffice for lines, at a third of the size.
        image = Image.open(written).convert('RGB').quantize(_SAVED_COLOURS)
        written = BytesIO()
        image.save(written, format='png', optimize=True)
    write_atomically(written.getvalue(), path)
    return Path(path)
