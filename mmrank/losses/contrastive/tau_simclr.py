"""SimCLR with a temperature that the network computes of each view."""

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.settings import check_positive
from mmrank.tensors import at_least_float32

from .base import ContrastedBatch, ContrastiveLoss
from .info_nce import info_nce_losses


class TaUSimCLRLoss(ContrastiveLoss):
    """SimCLR with a temperature that the network computes of each view.

    The network returns D + 1 numbers: an embedding, and e, by which the logits of that view as an
    anchor are ``cos * sigmoid(e) / tau``: its temperature is ``tau (1 + exp(-e))``, learned by the
    gradient of that anchor. The positive is not in the denominator. Source: Zhang et al.,
    Temperature as Uncertainty in Contrastive Learning, 2021, as their code computes it, and
    iSogCLR's for table 10 (ICML 2023). The papers print the inverse, a temperature of ``sigmoid(e)
    / tau``: a misprint. Set the ``out_channels`` of the neck to one more than the embedding has.

    Args:
        tau: Temperature > 0 that no anchor goes below.
    """

    def __init__(self, tau: float = 0.1, **kwargs) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        self.tau = float(tau)

    def normalized(self, view: Tensor) -> Tensor:
        """(n, D + 1) rows, of which e is left as it is."""
        if view.size(1) < 2:
            raise UserError(
                f'TaUSimCLRLoss got views of {view.size(1)} columns, but needs an embedding and '
                'one more. Fix: out_channels of the neck'
            )
        rows = super().normalized(view[:, :-1])
        return torch.cat([rows, view[:, -1:].to(rows.dtype)], 1)

    def temperatures(self, rows: Tensor) -> Tensor:
        """(n,) temperatures, at least float32, of (n, D + 1) rows."""
        e = at_least_float32(rows[:, -1])
        # Below -15 the logits are as good as equal; exp would leave the range of float32.
        return self.tau * (1 + e.clamp(min=-15).neg().exp())

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        tau = torch.stack([self.temperatures(x) for x in batch.local.views])
        terms = self.terms(_embeddings_of(batch), tau, bimodal=False)
        if tau.numel():
            self.diagnostics['tau_mean'] = tau.detach().mean()
            self.diagnostics['tau_min'] = tau.detach().min()
            self.diagnostics['tau_max'] = tau.detach().max()
        return info_nce_losses(terms, positive_in_denominator=False).mean(0)

    def _note(self, batch: ContrastedBatch) -> None:
        super()._note(_embeddings_of(batch))


def _embeddings_of(batch: ContrastedBatch) -> ContrastedBatch:
    """The batch without the last column, e."""
    return batch.mapped(lambda samples: samples.with_rows(lambda rows: rows[:, :-1]))
