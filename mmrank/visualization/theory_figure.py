"""What the figures of the theory tools share."""

import os
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

_SAVED_COLOURS = 96


def new_panels(
    rows: int, columns: int, width: float = 3.6, height: float = 2.8
) -> tuple[Figure, np.ndarray]:
    """A figure and its (rows, columns) axes, without a display."""
    figure = Figure(
        figsize=(width * columns, height * rows), layout='constrained'
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        axis.xaxis.label.set_size(9)
        axis.yaxis.label.set_size(9)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.tick_params(labelsize=8)
        axis.spines[['top', 'right']].set_visible(False)
    return figure, axes


def label_panels(axes: np.ndarray) -> None:
    """Put a, b, c ... before the titles, as papers refer to panels."""
    for index, axis in enumerate(axes.ravel()):
        title = f'({chr(97 + index)}) {axis.get_title()}'
        axis.set_title('')
        axis.set_title(title, fontsize=9, loc='left')


def legend_above(figure: Figure, axis: Axes, columns: int) -> None:
    """The legend of one panel, for all of them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc='outside upper center',
        ncols=columns,
        fontsize=8,
        frameon=False,
    )


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """Write the figure as a small PNG; its folder is made if needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = BytesIO()
    figure.savefig(pixels, dpi=130, format='png')
    # Few colours suffice for lines, at a third of the size.
    image = Image.open(pixels).convert('RGB').quantize(_SAVED_COLOURS)
    image.save(path, format='png', optimize=True)
    return path
