"""Numbers of positives and negatives of each class in the data set."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LabelCounts(nn.Module):
    """Positives and negatives of each class, from the config or the data.

    Not part of a checkpoint: they come from the config or the data set.

    Args:
        num_classes: Number of classes C; 1 is a binary problem.
        positives: (C,) positives of each class, or None until :meth:`set`.
        num_samples: Samples of the data set. None: the sum of ``positives``, as where every sample
            has one class.

    Attributes:
        negative_positive: (C, 2) float64 buffer; NaN before :meth:`set`.
        known: Whether the counts are there.

    Raises:
        ValueError: If the counts are no counts of C classes.
    """

    negative_positive: Tensor

    def __init__(
        self,
        num_classes: int,
        positives: Sequence[int] | None = None,
        num_samples: int | None = None,
    ) -> None:
        super().__init__()
        if not (isinstance(num_classes, int) and num_classes >= 1):
            raise ValueError(
                f'num_classes must be an int >= 1, got {num_classes!r}; set '
                'it to the number of classes of the training set'
            )
        empty = torch.full((num_classes, 2), torch.nan, dtype=torch.float64)
        self.register_buffer('negative_positive', empty, persistent=False)
        self.known = False
        if positives is not None:
            self.set(positives, num_samples)

    def _apply(self, fn, recurse=True):
        # model.half() would round the counts.
        counts = self.negative_positive
        super()._apply(fn, recurse)
        if self.negative_positive.dtype != counts.dtype:
            self.negative_positive = counts.to(self.negative_positive.device)
        return self

    def extra_repr(self) -> str:
        return f'num_classes={len(self.negative_positive)}'

    def set(self, positives: Sequence[int] | Tensor, num_samples: int | None = None) -> None:
        """Take the counts.

        Args:
            positives: (C,) positives of each class, 0 for one without
                any.
            num_samples: See the class.

        Raises:
            ValueError: If the counts are no counts of C classes.
        """
        positives = torch.as_tensor(positives, dtype=torch.float64)
        size = len(self.negative_positive)
        if positives.shape != (size,) or not (positives >= 0).all():
            raise ValueError(
                f'class_counts must be ({size},) numbers >= 0, one for each '
                f'class, got {positives.tolist()!r:.80}'
            )
        total = positives.sum() if num_samples is None else num_samples
        negatives = total - positives
        if not (negatives >= 0).all() or (size == 1 and negatives[0] == 0):
            raise ValueError(
                f'num_samples={num_samples!r} leaves a class without negatives: class_counts are '
                f'{positives.tolist()!r:.80}; set it to the number of samples of the training set'
            )
        counts = torch.stack([negatives, positives], 1)
        self.negative_positive.copy_(counts)
        self.known = True

    def get(self) -> Tensor:
        """(C, 2) float64 negatives and positives.

        Raises:
            RuntimeError: If the counts are not set.
        """
        if not self.known:
            raise RuntimeError(
                'the class counts of the training set are missing: add '
                'custom_hooks=[dict(type="mmrank.ClassCountsHook")], or pass '
                'class_counts and num_samples to the loss'
            )
        return self.negative_positive
