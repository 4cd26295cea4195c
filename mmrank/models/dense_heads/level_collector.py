"""Gathers the calls that a dense head makes to its classification loss."""

import torch
from torch import Tensor, nn


class LevelCollector(nn.Module):
    """Stands in for ``loss_cls`` of a head that calls it once per level.

    While open, each call is noted and answered with 0; :meth:`close` then
    calls the real loss once, on everything.

    Args:
        loss: The loss to call, on ``(scores, target, weight, avg_factor=)``.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self.use_sigmoid = True
        self._calls: list[tuple] | None = None

    def open(self) -> None:
        """Begin to gather, forgetting what an interrupted pass left."""
        self._calls = []

    def forward(
        self,
        pred: Tensor,
        target: Tensor | tuple[Tensor, Tensor],
        weight: Tensor | None = None,
        avg_factor: float | None = None,
    ) -> Tensor:
        """Note the scores of one level.

        Args:
            pred: (n, C) raw scores.
            target: (n,) class indices, or a pair of them and a quality (as
                the heads of generalised focal loss pass); the quality has no
                place in a ranking of positives against negatives.
            weight: (n,) weights or None.
            avg_factor: The head's normaliser.

        Returns:
            Scalar 0 in the place of the level's loss.

        Raises:
            RuntimeError: If called outside ``loss_by_feat``.
        """
        if self._calls is None:
            raise RuntimeError(
                'the classification loss of a listwise head was called '
                'outside loss_by_feat, where no level can be gathered'
            )
        if isinstance(target, tuple):
            target = target[0]
        self._calls.append((pred, target, weight, avg_factor))
        return pred.new_zeros(())

    def close(self) -> Tensor:
        """Call the loss on all that was gathered.

        Returns:
            What the loss returns.

        Raises:
            RuntimeError: If the head never called its classification loss.
        """
        calls, self._calls = self._calls, None
        if not calls:
            raise RuntimeError(
                'the head computed its losses without calling loss_cls, so '
                'there is nothing to rank'
            )
        preds, targets, weights, factors = zip(*calls)
        weight = None
        if any(w is not None for w in weights):
            weight = torch.cat(
                [
                    t.new_ones(t.size(0), dtype=torch.float)
                    if w is None
                    else w
                    for w, t in zip(weights, targets)
                ]
            )
        return self.loss(
            torch.cat(preds), torch.cat(targets), weight, avg_factor=factors[0]
        )
