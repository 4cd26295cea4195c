"""Weights of the positives of each class."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.settings import check_not_negative, check_within
from mmrank.state.base import SavedState
from mmrank.state.class_counts import MISSING_COUNTS, Counts, checked_counts, class_index
from mmrank.training_set import TrainingSet

#: What ``class_weight`` of a loss may be; a list may be an array or a tensor.
ClassWeight = Sequence[float] | Mapping[str | int, float] | str | tuple[str, float] | None


class ClassWeights(SavedState):
    """How often a positive of each class counts, given or by its frequency; not in a checkpoint.

    ``given`` is the ``class_weight`` of :class:`mmrank.losses.HeadLoss`; ``num_classes`` is None
    for the columns of the scores.
    """

    weight: Tensor | None = None  # (C,) float64

    def __init__(self, given: ClassWeight, num_classes: int | None = None) -> None:
        super().__init__()
        if isinstance(given, (np.ndarray, Tensor)):
            given = given.tolist()
        self.num_columns = num_classes
        self.given = given
        self.power: float | None = None
        pair = (given, 1.0) if isinstance(given, str) else given
        name, power = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
        if str(name) == 'auto' and isinstance(power, Real):
            check_within('[0, 1]', **{"power of class_weight=('auto', power)": power})
            self.power = float(power)
        else:
            _check(given)
        #: Whether the weights follow the counts of the classes.
        self.wants_class_counts = self.power is not None
        self.training_set = TrainingSet()

    def set_class_counts(self, counts: Counts, num_samples: int | None = None) -> None:
        """Take the (C,) positives of each class; the number of samples has no effect."""
        counts = checked_counts(counts, self.num_columns)
        # A class without a positive has nothing to weigh.
        weight = torch.where(counts > 0, counts, 1) ** -float(self.power or 0)
        self.set_constant('weight', weight * counts.sum() / (counts * weight).sum())

    def of(self, classes: int) -> Tensor:
        """(C,) float64 weights of a number of classes; UserError where they do not fit."""
        if self.weight is None:
            self.set_constant('weight', self._given(classes))
        weight = self.weight
        if weight is None or len(weight) != classes:
            raise UserError(
                f'class_weight has {0 if weight is None else len(weight)} numbers for {classes} '
                'classes. Fix: one for each class, or a dict of the ones that are not 1'
            )
        return weight

    def like(self, cls_score: Tensor) -> Tensor:
        """:meth:`of` the columns of (n, C) scores, on their device, at least float32."""
        dtype = torch.promote_types(cls_score.dtype, torch.float32)
        return self.of(cls_score.size(1)).to(cls_score.device, dtype)

    def _given(self, classes: int) -> Tensor:
        if self.power is not None:
            raise RuntimeError(f"class_weight='auto': {MISSING_COUNTS}")
        if not isinstance(self.given, Mapping):
            return torch.as_tensor(self.given, dtype=torch.float64, device='cpu')
        names = list(self.training_set.metainfo().get('classes') or range(classes))
        weight = torch.ones(classes, dtype=torch.float64, device='cpu')
        for name, value in self.given.items():
            index = names.index(name) if name in names else class_index(name, classes)
            if index is None:
                near = get_close_matches(str(name), [str(x) for x in names], n=1)
                fix = repr(near[0]) if near else f'one of {", ".join(map(repr, names[:20]))}'
                raise UserError(f'class_weight has {name!r}, which is not a class. Fix: {fix}')
            weight[index] = float(value)
        return weight


class WeighsClasses:
    """A loss whose positives count by their classes."""

    class_weights: ClassWeights | None  # None: each counts once

    @property
    def has_auto_weights(self) -> bool:
        """Whether the weights follow the counts of the classes."""
        return self.class_weights is not None and self.class_weights.wants_class_counts

    def set_class_counts(self, counts: Counts, num_samples: int | None = None) -> None:
        """Take the (C,) positives of each class in training and the number of samples."""
        if self.class_weights is None or not self.has_auto_weights:
            what = f'{type(self).__name__} has no use for class counts'
            fix = "class_weight='auto', or of SOPRCLoss prior='counts' with num_classes"
            raise UserError(what, fix)
        self.class_weights.set_class_counts(counts, num_samples)


def weighed_positives(
    of_class: Tensor, is_positive: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(n, C) positives, those of weight 0 absent, and weights times the (C,) ones of positives."""
    of_entries = torch.where(is_positive, of_class, 1)
    is_positive = is_positive & (of_entries > 0)
    return is_positive, of_entries if weight is None else of_entries * weight


def _check(given: ClassWeight) -> None:
    """Raise UserError unless these are numbers >= 0, by class or in order."""
    listed = [*given.values()] if isinstance(given, Mapping) else given
    values = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ()
    numbers = {f'class_weight[{i}]': x for i, x in enumerate(values) if isinstance(x, Real)}
    if not numbers or len(numbers) < len(values):
        what = f'class_weight={given!r:.80} must be a number for each class'
        raise UserError(what, "a list of them, a dict by class name, 'auto', or ('auto', 0.5)")
    check_not_negative(**numbers)
