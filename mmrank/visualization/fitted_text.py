"""Text that is no wider than its place."""

from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from mmrank.visualization.short_names import shorten


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: str = 'normal') -> float:
    """Width in inches of one line.

    Args:
        text: The line.
        size: Font size in points.
        weight: ``'normal'`` or ``'bold'``.
    """
    if not text.strip():
        return 0.0  # no outline to measure
    font = FontProperties(weight=weight)
    return TextPath((0, 0), text, size=size, prop=font).get_extents().x1 / 72


def fit_text(
    text: str, width: float, size: float, weight: str = 'normal'
) -> str:
    """Shorten a line in its middle until it fits.

    Args:
        text: The line.
        width: Inches.
        size: Font size in points.
        weight: ``'normal'`` or ``'bold'``.

    Returns:
        The line, of at least three characters if it had more.
    """
    shown, length = text, len(text)
    while length > 3 and text_width(shown, size, weight) > width:
        length -= 1
        shown = shorten(text, length)
    return shown


def fit_two_lines(
    text: str, width: float, size: float, weight: str = 'normal'
) -> list[str]:
    """Break text at the space nearest its middle if one line is too short.

    Args:
        text: The text.
        width: Inches.
        size: Font size in points.
        weight: ``'normal'`` or ``'bold'``.

    Returns:
        One or two lines that fit.
    """
    spaces = [i for i, c in enumerate(text) if c == ' ']
    if text_width(text, size, weight) <= width or not spaces:
        return [fit_text(text, width, size, weight)]
    middle = min(spaces, key=lambda i: abs(2 * i - len(text)))
    halves = text[:middle], text[middle + 1 :]
    return [fit_text(half, width, size, weight) for half in halves]
