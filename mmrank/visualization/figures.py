"""Colours that people with any colour vision tell apart."""

# Okabe and Ito, "Color Universal Design", 2008, without black, which is the
# colour of text and axes, and without the yellow, too pale for lines.
_COLOURS = (
    '#D55E00',
    '#0072B2',
    '#009E73',
    '#CC79A7',
    '#E69F00',
    '#56B4E9',
)
_DASHES = ('-', '--', '-.', ':')


def colour(index: int) -> str:
    """Colour of the ``index``-th model; they repeat after six."""
    return _COLOURS[index % len(_COLOURS)]


def dash(index: int) -> str:
    """Line style of the ``index``-th model.

    With the colour it makes twelve that differ, in print without colour four.
    """
    return _DASHES[index % len(_DASHES)]
