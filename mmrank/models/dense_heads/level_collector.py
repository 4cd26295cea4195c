"""Gathers the calls that a dense head makes to its classification loss."""

import torch
from torch import Tensor, nn

from mmrank.models.federated_annotations import federated_weight
from mmrank.tensors import at_least_float32


class LevelCollector(nn.Module):
    """Replaces ``loss_cls`` of a head that calls it once per level.

    While open, each call is recorded and returns 0; :meth:`gather` then joins them. Where the head
    passes ``probabilities``, the loss gets their logits.
    """

    def __init__(self, loss: nn.Module, probabilities: bool = False) -> None:
        super().__init__()
        self.loss = loss
        self.probabilities = probabilities
        self.use_sigmoid = True
        self._calls: list[tuple] | None = None

    @property
    def targets(self) -> list[Tensor]:
        """Class indices of the calls gathered so far."""
        return [target for _, target, _, _ in self._calls or ()]

    def open(self) -> None:
        """Begin to gather, forgetting what an interrupted pass left."""
        self._calls = []

    def forward(
        self,
        pred: Tensor,
        target: Tensor | tuple[Tensor, Tensor],
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
    ) -> Tensor:
        """Record (n, C) raw scores and (n,) class indices of one level; returns a scalar 0.

        The target may be a pair of class indices and a quality, as heads of generalised focal loss
        pass; it has no place in a ranking. A call with ``reduction_override`` asks for the loss of
        each entry, which a ranking does not have.
        """
        if reduction_override is not None:
            raise RuntimeError(
                'this head calls its classification loss with reduction_override='
                f'{reduction_override!r}, which a ranking loss does not support; ListwiseHead does '
                'not support this head'
            )
        if isinstance(target, tuple):
            target = target[0]
        self._calls.append((pred, target, weight, avg_factor))
        return pred.new_zeros(())

    def gather(
        self, federated: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None, float | None]:
        """End the recording; (n, C) scores, (n,) targets, weights or None, the head's normaliser.

        ``federated`` has the (N, C) bool of
        :func:`~mmrank.models.federated_annotations.exhaustive_classes` and the (n,) image of each
        row; None where each image is annotated for all classes.
        """
        calls = self._calls
        self._calls = None
        if not calls:
            raise RuntimeError(
                'the head computed its losses without calling loss_cls, so there is nothing to rank'
            )
        preds, targets, weights, factors = zip(*calls)
        weight = None
        if any(w is not None for w in weights):
            weight = torch.cat(
                [
                    t.new_ones(t.size(0), dtype=torch.float) if w is None else w
                    for w, t in zip(weights, targets)
                ]
            )
        pred = torch.cat(preds)
        target = torch.cat(targets)
        if federated is not None:
            exhaustive, images = federated
            if len(images) != len(pred):
                raise RuntimeError(
                    f'the head passed {len(pred)} rows to loss_cls, but its levels have '
                    f'{len(images)}: federated=True does not support this head'
                )
            weight = federated_weight(self.loss, exhaustive, images, target, weight)
        return to_logits(pred) if self.probabilities else pred, target, weight, factors[0]


def to_logits(probabilities: Tensor) -> Tensor:
    """Raw scores, within about +-16 and at least float32, of probabilities in [0, 1]."""
    return at_least_float32(probabilities).logit(eps=1e-7)
