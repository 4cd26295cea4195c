"""The colours of all pictures: one for each thing, in the order of its legend."""

_COLOURS = (
    # Okabe and Ito, "Color Universal Design", 2008, without black, which is the colour of text and
    # axes, and without the yellow, too pale for lines.
    *('#D55E00', '#0072B2', '#009E73', '#CC79A7', '#E69F00', '#56B4E9'),
    # Fewer readers tell these apart.
    *('#AA4499', '#882255', '#117733', '#44AA99', '#999933', '#332288', '#005F73', '#7F4F24'),
    *('#4F7942', '#A0522D', '#888888', '#B8860B', '#6A3D9A', '#33A02C', '#666666', '#1F3A5F'),
    *('#17BECF', '#8C564B', '#BCBD22', '#9467BD'),
)
_DASHES = ('-', '--', '-.', ':')


def colour(index: int) -> str:
    """Colour of the ``index``-th thing, as ``#rrggbb``; they repeat when there are no more."""
    return _COLOURS[index % len(_COLOURS)]


def dash(index: int) -> str:
    """Line style of the ``index``-th model: in grey print four differ."""
    return _DASHES[index % len(_DASHES)]
