"""Recommendations for some users as a picture."""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from matplotlib.lines import Line2D

from mmrank.visualization.figures import fit_text, new_panels, save
from mmrank.visualization.palette import colour

_COLUMNS = 3
# Inches, and dots an inch: 800 pixels of a page at two dots a pixel.
_WIDTH, _DPI = 8.0, 200
_HIT, _OTHER = colour(0), '0.65'


def draw_recommendations(
    found: Mapping[str, Sequence[tuple[str, float]]],
    path: str | os.PathLike,
    held_out: Mapping[str, Collection[str]] | None = None,
) -> Path:
    """Draw a panel for each user: the items from the top, scores as dots.

    Args:
        found: Items and their scores by user, best first.
        path: PNG file to write.
        held_out: Items by user that were kept from the training: found again, they have another
            colour, and the title counts them. None: not known.
    """
    columns = min(_COLUMNS, len(found))
    longest = max(map(len, found.values()), default=0)
    figure, axes = new_panels(
        math.ceil(len(found) / columns), columns, _WIDTH / columns, 0.9 + 0.24 * longest
    )
    for axis, (user, items) in zip(axes.ravel(), found.items()):
        own = set((held_out or {}).get(user, ()))
        axis.scatter(
            [score for _, score in items],
            range(len(items)),
            color=[_HIT if name in own else _OTHER for name, _ in items],
            s=60,
            zorder=3,
        )
        axis.set_yticks(
            range(len(items)), [fit_text(name, _WIDTH / columns / 3, 9) for name, _ in items]
        )
        axis.set_ylim(longest - 0.5, -0.5)
        axis.tick_params(labelsize=9)
        axis.locator_params(axis='x', nbins=4)
        axis.set_xlabel('score')
        title = f'user {fit_text(user, _WIDTH / columns / 2, 10)}'
        if held_out is not None:
            right = sum(name in own for name, _ in items)
            title += f'\n{right} of {len(own)} held-out items found'
        axis.set_title(title, fontsize=10)
    for axis in axes.ravel()[len(found) :]:
        axis.set_axis_off()
    if held_out is not None:
        figure.legend(
            handles=[
                Line2D([], [], color=own, marker='o', linestyle='', label=label)
                for own, label in ((_HIT, 'held out from the training'), (_OTHER, 'another item'))
            ],
            loc='outside upper center',
            ncols=2,
            fontsize=9,
            frameon=False,
        )
    return save(figure, path, dpi=_DPI)
