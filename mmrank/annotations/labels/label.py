"""A label of a picture, and what is wrong with labels."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mmrank.annotations.labels.pictures import Picture
from mmrank.errors import UserError

#: Rounding of a label may put an edge so far outside, in fractions of a side.
SLACK = 0.01


class Label(NamedTuple):
    """An object: corners in pixels of the picture as it is shown."""

    where: str
    name: str
    corners: list[float]
    polygon: Sequence[float] = ()
    is_crowd: bool = False


class Faults(list):
    """Messages of the labels that cannot be read."""

    def of(self, read: Callable, *args: object) -> list:
        """What ``read`` returns, in a list; none and a message if it refuses its label."""
        try:
            return [read(*args)]
        except UserError as error:
            self.append(str(error))
            return []

    def raise_if_any(self) -> None:
        """Raise the first message, with what is wrong with the others."""
        if not self:
            return
        first, *texts = dict.fromkeys(self)
        others = [text.partition('. Fix:')[0] for text in texts[:49]]
        if len(texts) > 49:
            others.append(f'and {len(texts) - 49} more')
        raise UserError('\n  likewise '.join([first, *others]))


def compare_size(picture: Picture, texts: Sequence[str], where: str) -> None:
    """Refuse labels of a picture of another size; an empty one or ``0`` is none."""
    stated = tuple(number_in(x or '0', where) for x in texts)
    actual = picture.width, picture.height
    if stated not in (actual, (0, 0)):
        turned = ', its sides swapped: EXIF turns it' if stated == actual[::-1] else ''
        raise UserError(
            f'{where}: the size is {" x ".join(texts)}, and {picture.name} is '
            f'{picture.width} x {picture.height}{turned}. Fix: the image that was annotated'
        )


def is_numeric(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def number_in(text: str, where: str) -> float:
    """The finite number that a text is; ``where`` is for the message if it is not."""
    if not is_numeric(text):
        fix = 'a finite number; in YOLO with blanks'
        raise UserError(f'{where}: {text!r:.80} is not a number', fix)
    return float(text)
