"""Which labels of boxes fit on a picture without covering each other."""

from collections.abc import Sequence

# Of the labels' font, DejaVu Sans, as shares of its size.
_CHARACTER_WIDTH = 0.68
_LINE_HEIGHT = 1.5


def fitting_labels(
    corners: Sequence[tuple[float, float]],
    labels: Sequence[str],
    font_size: float,
    *,
    is_below: Sequence[bool],
) -> list[bool]:
    """Choose labels so that no two overlap, the first ones before others.

    Args:
        corners: Where each label starts: its left end and the edge of the
            box, x to the right and y down.
        labels: Texts; an empty one takes no room.
        font_size: In the unit of ``corners``.
        is_below: Whether each label hangs below its corner, not above it.

    Returns:
        Whether each label is to be shown.
    """
    placed: list[tuple[float, float, float, float]] = []
    chosen = []
    for (x, y), label, below in zip(corners, labels, is_below):
        height = _LINE_HEIGHT * font_size
        top = y if below else y - height
        right = x + _CHARACTER_WIDTH * font_size * len(label)
        rectangle = (x, top, right, top + height)
        fits = bool(label) and not any(
            _overlap(rectangle, other) for other in placed
        )
        if fits:
            placed.append(rectangle)
        chosen.append(fits)
    return chosen


def _overlap(
    one: tuple[float, float, float, float],
    two: tuple[float, float, float, float],
) -> bool:
    return (
        one[0] < two[2]
        and two[0] < one[2]
        and one[1] < two[3]
        and two[1] < one[3]
    )
