"""The objective that a loss of in-batch sampling minimises on average."""

import torch
from torch import Tensor, nn

from mmrank.losses.two_tower.in_batch import in_batch_embedding_loss


def emulated_omega(batch_size: int, num_positives: int) -> float:
    """``(|Ohat| - 1) / (|O| - 1)``, equations (18) and (36)."""
    return (batch_size - 1) / (num_positives - 1)


def full_form(mode: str, omega: float, batch_size: int, num_positives: int) -> tuple[str, float]:
    """Mode and omega whose loss of all pairs is the expected objective.

    Source: "in-batch bias of two-tower models", equations (5), (13), (15), (16), (19) and appendix
    G.2.
    """
    if mode == 'sogram':
        return 'unbiased', 1.0
    if mode == 'pos_neg':
        return 'unbiased_omega', emulated_omega(batch_size, num_positives)
    if mode == 'in_batch':
        return 'in_batch_omega', emulated_omega(batch_size, num_positives)
    if mode == 'in_batch_omega':
        # Its batch's negatives have the weight 1 / ratio less.
        ratio = emulated_omega(batch_size, num_positives)
        return 'in_batch_omega', omega * ratio
    return mode, omega


class ExpectedObjective(nn.Module):
    """Mean of the losses over all batches, from all training pairs.

    Costs O(m n D) for the logistic loss and O((m + n + |O|) D^2) or less for the square one.

    Args:
        loss: The ``mmrank.InBatchLoss``; it knows the training pairs.
        batch_size: ``|Ohat|`` of the batches it is given.
        pairs: The batch of all training pairs; see
            :meth:`.two_tower_data.TwoTowerData.all_pairs`.
    """

    def __init__(self, loss, batch_size: int, pairs: dict) -> None:
        super().__init__()
        self._loss, self._pairs = loss, pairs
        self.mode, self.omega = full_form(
            loss.mode, loss.omega, batch_size, loss.counts.num_positives
        )

    def forward(self, model) -> Tensor:
        """Value at the weights of a two-tower model, differentiable once."""
        counts, pairs = self._loss.counts, self._pairs
        return self._loss.loss_weight * in_batch_embedding_loss(
            model.left(pairs['left']),
            model.right(pairs['right']),
            pairs['rows'],
            pairs['cols'],
            counts.row_counts,
            counts.col_counts,
            counts.num_positives,
            mode=self.mode,
            omega=self.omega,
            pointwise=self._loss.pointwise,
            shape=counts.shape,
            left_index=pairs['left_index'],
            right_index=pairs['right_index'],
            block_size=self._loss.block_size,
        )

    @torch.no_grad()
    def value(self, model) -> float:
        """Value as a number."""
        return float(self(model))
