"""CLIP's loss, with one temperature, or with one for each image and text."""

import torch
from torch import Tensor, nn

from mmrank.settings import check_ascending, check_count, check_positive

from .base import ContrastedBatch, ContrastiveLoss
from .info_nce import info_nce_losses


class CLIPLoss(ContrastiveLoss):
    """Symmetric cross-entropy of images and texts.

    The image of a pair is classified among the texts of the batch, and its text among the images;
    the two losses are averaged. Give ``loss.parameters()`` to the optimiser, too. Source: Radford
    et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021,
    section 2.3. With ``labels`` it is the loss of UniCL, Yang et al., CVPR 2022, eq. 2 to 4.

    Args:
        tau: Temperature, at the start if it is learned. CLIP takes 0.07.
        learnable: Learn the temperature: its logarithm is the (1,) parameter ``log_tau``, to be
            spared by weight decay
            (``paramwise_cfg=dict(custom_keys={'log_tau': dict(decay_mult=0)})``).
        tau_min: The learned temperature stays above; CLIP takes 0.01.
        tau_max: And below.

    Example:
        >>> rows = torch.eye(2)
        >>> round(float(CLIPLoss(tau=0.5, learnable=False)(rows, rows)), 4)
        0.1269
    """

    takes_labels = True

    def __init__(
        self,
        tau: float = 0.07,
        learnable: bool = True,
        tau_min: float = 0.01,
        tau_max: float = 1.0,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau, tau_min=tau_min, tau_max=tau_max)
        bounds = dict(tau_min=tau_min, tau=tau, tau_max=tau_max)
        self.set_temperature(tau, bounds if learnable else None)

    temperature = ContrastiveLoss.shared_temperature

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        tau = self.temperature()
        if isinstance(tau, Tensor):
            self.diagnostics['tau'] = tau.detach()
        return info_nce_losses(self.terms(batch, tau, bimodal=True)).mean(0)


class IndividualCLIPLoss(ContrastiveLoss):
    """CLIP's loss with a temperature for each image and each text, learned by its own gradient.

    A baseline of iSogCLR, not a loss to take: the paper reports that the mean temperature grows and
    training hardly converges. A larger temperature lowers the loss of a pair as long as negatives
    score above it. (The text says "below", with which the sign of its own equation does not agree.)
    Source: iSogCLR (ICML 2023), appendix C.3.

    The temperatures are the (num_samples,) parameters ``image_tau`` and ``text_tau``. Spare them
    the weight decay: ``paramwise_cfg=dict(custom_keys={'_tau': dict(decay_mult=0)})``. They stay
    above 0.001; there is no upper bound.

    Args:
        num_samples: Number of pairs in the training set.
        tau: Temperature at the start, above 0.001.
    """

    keeps_samples = True
    takes_labels = True
    tau_min = 0.001

    def __init__(self, num_samples: int, tau: float = 0.01, **kwargs) -> None:
        super().__init__(**kwargs)
        fix = '; set it to the number of pairs in the training set'
        check_count('num_samples', num_samples, fix=fix)
        check_ascending(tau_min=self.tau_min, tau=tau)
        self.num_samples = num_samples
        start = torch.full((num_samples,), tau, dtype=torch.float32)
        self.image_tau = nn.Parameter(start)
        self.text_tau = nn.Parameter(start.clone())

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        taus = []
        for name in ('image_tau', 'text_tau'):
            with torch.no_grad():
                getattr(self, name).clamp_(self.tau_min)
            tau = self.learnt(name)
            taus.append(tau[batch.local.ids])
            self.diagnostics[f'{name}_mean'] = tau.detach().mean()
        return info_nce_losses(self.terms(batch, torch.stack(taus), bimodal=True)).mean(0)
