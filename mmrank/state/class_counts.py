"""Class counts of the data set, and the shares of positives that come from them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.settings import check_within

from .base import SavedState, rows_of_lists

MISSING_COUNTS = (
    'the class counts of the training set are missing. Fix: loss.set_class_counts(counts) before '
    'training; with mmengine custom_hooks=[dict(type="mmrank.ClassCountsHook")]'
)


#: Samples of each class, in order or by its index.
Counts = Sequence[int] | Mapping[int, int] | Tensor


def class_index(key: Any, classes: int) -> int | None:
    """Index of a class by a key of a dict, text where it comes from JSON; None: there is none."""
    if isinstance(key, str) and key.isdecimal():
        key = int(key)
    return int(key) if key in range(classes) else None


def checked_counts(counts: Counts, size: int | None = None) -> Tensor:
    """(size,) float64 samples of each class, else UserError; None: of as many as there are."""
    shape = f'({"C" if size is None else size},)'
    fix = f'Fix: {shape} numbers, or a Counter, of the positives of each class in training'
    if isinstance(counts, Mapping):
        places: dict[Any, int] = {
            class_index(x, 2**31 if size is None else size): x for x in counts
        }
        if None in places:
            raise UserError(f'class_counts has {places[None]!r}, which is not a class index. {fix}')
        if size is None:
            size = int(max(places, default=0)) + 1
        counts = [counts[places[i]] if i in places else 0 for i in range(size)]
    try:
        counts = torch.as_tensor(counts, dtype=torch.float64, device='cpu')
    except (TypeError, ValueError) as error:
        raise UserError(f'class_counts={counts!r:.80} must be numbers. {fix}') from error
    fits = counts.dim() == 1 and size in (None, len(counts))
    if not fits or not ((counts >= 0) & counts.isfinite()).all() or not counts.any():
        raise UserError(
            f'class_counts must be {shape} numbers >= 0, finite, one for each class, not all 0, '
            f'got {counts.tolist()!r:.80}. {fix}'
        )
    return counts


class LabelCounts(SavedState):
    """Positives and negatives of each class, from the config or the data; not in a checkpoint.

    Of ``num_classes`` C, 1 for a binary problem, ``positives`` are (C,), or None until :meth:`set`;
    ``num_samples`` are all samples, None: their sum, as where every sample has one class.
    """

    negative_positive: Tensor | None = None  # (C, 2) float64

    def __init__(
        self,
        num_classes: int | None = None,
        positives: Counts | None = None,
        num_samples: int | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        if positives is not None:
            self.set(positives, num_samples)

    def set(self, positives: Counts, num_samples: int | None = None) -> None:
        """Take the (C,) positives of each class; see the class for ``num_samples``."""
        positives = checked_counts(positives, self.num_classes)
        self.num_classes = len(positives)
        total = positives.sum() if num_samples is None else num_samples
        negatives = total - positives
        fits = (negatives >= 0) & negatives.isfinite()
        if not fits.all() or (self.num_classes == 1 and negatives[0] == 0):
            raise ValueError(
                f'num_samples={num_samples!r} leaves a class without negatives: class_counts are '
                f'{positives.tolist()!r:.80}; set it to the number of samples of the training set'
            )
        self.set_constant('negative_positive', torch.stack([negatives, positives], 1))

    def get(self) -> Tensor:
        """(C, 2) float64 negatives and positives; RuntimeError if they are not set."""
        if self.negative_positive is None:
            raise RuntimeError(MISSING_COUNTS)
        return self.negative_positive


class ClassPrior(SavedState):
    """Class priors pi, given or from the class counts of a data set; not in a checkpoint.

    ``prior`` is one number, or one per class, each in (0, 1); or ``counts``: N_c/N of ``size``
    classes, set by :meth:`set_counts`. They are scaled so that the largest is the ``maximum``, as
    the authors of SOPRC do with 0.1: true priors of 1e-4 make ``(1-pi)/pi`` so large that a risk
    ``x/(1 + x)`` has no slope.
    """

    prior: Tensor  # (size,) float64, NaN until the counts are set

    def __init__(
        self,
        prior: float | Sequence[float] | str,
        size: int | None = None,
        maximum: float | None = None,
    ) -> None:
        super().__init__()
        if maximum is not None:
            check_within('(0, 1)', max_prior=maximum)
        self.from_counts = isinstance(prior, str)
        self.maximum = maximum
        self.known = not self.from_counts
        if not isinstance(prior, str):
            values = self._scaled(self._given(prior, size))
        elif prior != 'counts':
            raise ValueError(
                f"prior={prior!r} is unknown; use 'counts', 'batch', a number or one per class"
            )
        elif size is None:
            raise ValueError("prior='counts' requires num_classes")
        else:
            values = torch.full((size,), torch.nan, dtype=torch.float64, device='cpu')
        self.set_constant('prior', values)

    def _given(self, prior: float | Sequence[float], size: int | None) -> Tensor:
        values = torch.as_tensor(prior, dtype=torch.float64, device='cpu').reshape(-1)
        if not (values.numel() and ((values > 0) & (values < 1)).all()):
            raise ValueError(f'prior must be in (0, 1), got {prior!r}')
        if self.maximum is not None and values.numel() == 1:
            what = f'max_prior={self.maximum!r} scales priors of classes'
            raise ValueError(f'{what}; with prior={prior!r} set prior to that number itself')
        if isinstance(prior, Sequence) and values.numel() != size:
            what = f'prior holds {values.numel()} values, but num_classes={size}'
            raise ValueError(f'{what}; set one prior for each class')
        return values

    def set_counts(self, counts: Counts, num_samples: int | None = None) -> None:
        """Take (size,) samples of each class, of ``num_samples``; None: the sum."""
        counts = checked_counts(counts, self.prior.numel())
        total = counts.sum() if num_samples is None else num_samples
        if not ((counts < total).all() and total < torch.inf):
            what = f'class_counts must each be below the number of all samples, {float(total):g}'
            raise ValueError(f'{what}, got {counts.tolist()!r:.80}')
        # A class without a sample has no list; 1/2 keeps its odds finite.
        share = torch.where(counts > 0, self._scaled(counts / total), 0.5)
        self.set_constant('prior', share)
        self.known = True

    def of(self, lists: int, rows: Tensor | None) -> Tensor:
        """(1,) or (lists,) priors: of the (L,) classes ``rows`` of the lists, or all in order."""
        if not self.known:
            raise RuntimeError(f"prior='counts': {MISSING_COUNTS}")
        rows = rows_of_lists(rows, lists, self.prior.numel())
        return self.prior if rows is None else self.prior[rows]

    def _scaled(self, values: Tensor) -> Tensor:
        if self.maximum is None:
            return values
        return values * (self.maximum / values.max())
