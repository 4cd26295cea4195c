"""Imbalance rho that keeps the outer function of stable AP from saturating."""

import torch
from torch import Tensor

from .running_mean import RunningMean


class CappedImbalance(RunningMean):
    """``rho = min(n-/n+, 1/EMA(X))``, X the mean weighted risk of a batch.

    With one list, rho and h only scale the step: h(x) has the slope
    ``1/(2 h (1 + x)^2)``, so an argument ``rho X`` far above 1 leaves hardly
    a gradient. The paper's ``rho = n-/n+`` is 10^3 to 10^4 for the anchors of
    a detector. The cap keeps the argument near 1 while X falls, until the
    paper's rho is reached. Of X of the batch itself every step would have the
    same size; the EMA lets a batch with a larger risk count for more.

    A batch counts as at most :attr:`LARGEST_STEP` times the mean, so that one
    broken batch does not double the EMA.

    Args:
        size: Number of means: 1, or one per class.
        momentum: Weight of the new batch in the EMA, in ``(0, 1]``.

    Attributes:
        mean: (size,) float32 buffer, EMA of X.
        num_updates: (size,) int64 buffer, batches that each mean saw.

    Raises:
        ValueError: On a parameter out of range.
    """

    TARGET = 1.0
    LARGEST_STEP = 10.0

    def __init__(self, size: int = 1, momentum: float = 0.1) -> None:
        super().__init__(size, momentum)

    @torch.no_grad()
    def rho(
        self,
        risk: Tensor,
        ratio: Tensor,
        has_positive: Tensor,
        group=None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Take in the risks of a batch and return rho for its lists.

        Args:
            risk: (L,) weighted risks X of the lists, >= 0.
            ratio: (L,) n-/n+ of the lists.
            has_positive: (L,) bool; other lists are ignored.
            group: Process group whose ranks hold different lists, or parts of
                them; None if these are the lists of the whole batch.
            rows: (L,) integer mean that each list belongs to, or None. See
                :meth:`RunningMean.update`.

        Returns:
            (L,) float64 imbalances > 0. Where the EMA saw no batch yet, as in
            an evaluation before training, X is that of the list itself.
        """
        risk = risk.detach().double()
        mean = self.update(risk[:, None], has_positive[:, None], group, rows)
        seen = self._of_lists(self.num_updates > 0, rows)
        mean = torch.where(seen, mean.double(), risk)
        return torch.minimum(ratio, self.TARGET / mean)

    def _target(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        # A mean of 0 (all ranked right so far) must be able to rise again.
        largest = torch.where(mean > 0, self.LARGEST_STEP * mean, batch_mean)
        return super()._target(mean, torch.minimum(batch_mean, largest))
