"""What a listwise loss is computed from."""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class RankedLists:
    """L rankings of a batch, what a listwise loss is computed from.

    Attributes:
        pos: (L, P) activated scores of the positives, padded; those of all
            ranks when ``group`` is set.
        pos_mask: (L, P) bool, False for padding.
        scores: (L, N) activated scores of this rank.
        neg_mask: (L, N) bool, True for the negatives.
        values: (L, P) what the head said of the boxes of the positives (their
            quality or their box loss), or None.
        group: Process group over which the negatives are spread, or None.
        state_group: Process group whose ranks hold other positives than
            those in ``pos``, or None.
        list_classes: (L,) integer class of each list, or None if list i is
            that of class i or there is one list in all.
    """

    pos: Tensor
    pos_mask: Tensor
    scores: Tensor
    neg_mask: Tensor
    values: Tensor | None
    group: object
    state_group: object
    list_classes: Tensor | None = None
