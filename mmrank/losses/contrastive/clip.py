"""CLIP's loss, with one temperature, or with one for each image and text."""

import math

import torch
from torch import Tensor, nn

from mmrank.checks import check_ascending, check_count, check_positive
from mmrank.losses.options import ContrastiveOptions, Unpack
from mmrank.state.sample_state import check_sample_ids
from mmrank.tensors import at_least_float32

from .base import ContrastedBatch, ContrastiveLoss
from .info_nce import info_nce_losses


def bounded_exp(logarithm: Tensor, low: float, high: float) -> Tensor:
    """() exponential of a parameter that is kept in ``[low, high]``, at least float32.

    The parameter itself is clamped: outside the bounds a clamped value has no gradient, so it could
    not return.
    """
    with torch.no_grad():
        logarithm.clamp_(low, high)
    return at_least_float32(logarithm).exp()


class CLIPLoss(ContrastiveLoss):
    """Symmetric cross-entropy of images and texts.

    The image of a pair is classified among the texts of the batch, and its text among the images;
    the two losses are averaged. Source: Radford et al., Learning Transferable Visual Models From
    Natural Language Supervision, ICML 2021, section 2.3.

    Args:
        tau: Temperature, at the start if it is learned. CLIP takes 0.07.
        learnable: Learn the temperature: its logarithm is the parameter ``log_tau`` (else a buffer
            that is not saved), to be spared by weight decay
            (``paramwise_cfg=dict(custom_keys={'log_tau': dict(decay_mult=0)})``).
        tau_min: The learned temperature stays above; CLIP takes 0.01.
        tau_max: And below.
        **kwargs: See :class:`ContrastiveLoss`.

    Example:
        >>> rows = torch.eye(2)
        >>> round(float(CLIPLoss(tau=0.5, learnable=False)(rows, rows)), 4)
        0.1269
    """

    def __init__(
        self,
        tau: float = 0.07,
        learnable: bool = True,
        tau_min: float = 0.01,
        tau_max: float = 1.0,
        **kwargs: Unpack[ContrastiveOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        if learnable:
            check_ascending(tau_min=tau_min, tau=tau, tau_max=tau_max)
        self.learnable = learnable
        self.bounds = (math.log(tau_min), math.log(tau_max))
        log_tau = torch.tensor(math.log(tau))
        if learnable:
            self.log_tau = nn.Parameter(log_tau)
        else:
            self.register_buffer('log_tau', log_tau, persistent=False)

    def temperature(self) -> Tensor:
        """() temperature, at least float32."""
        bounds = self.bounds if self.learnable else (-math.inf, math.inf)
        return bounded_exp(self.log_tau, *bounds)

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over image and text of each sample."""
        tau = self.temperature()
        image_terms, text_terms = batch.terms([tau, tau])
        self.diagnostics['tau'] = tau.detach()
        return (info_nce_losses(image_terms) + info_nce_losses(text_terms)) / 2


class IndividualCLIPLoss(ContrastiveLoss):
    """CLIP's loss with a temperature for each image and each text, learned by its own gradient.

    A baseline of iSogCLR, not a loss to take: the paper reports that the mean temperature grows and
    training hardly converges. A larger temperature lowers the loss of a pair as long as negatives
    score above it. (The text says "below", with which the sign of its own equation does not agree.)
    Source: iSogCLR (ICML 2023), appendix C.3.

    The temperatures are the (num_samples,) parameters ``image_tau`` and ``text_tau``. Spare them
    the weight decay: ``paramwise_cfg=dict(custom_keys={'_tau': dict(decay_mult=0)})``.

    Args:
        num_samples: Number of pairs in the training set.
        tau: Temperature at the start.
        tau_min: The temperatures stay above, > 0. There is no upper bound.
        **kwargs: See :class:`ContrastiveLoss`.
    """

    keeps_samples = True

    def __init__(
        self,
        num_samples: int,
        tau: float = 0.01,
        tau_min: float = 0.001,
        **kwargs: Unpack[ContrastiveOptions],
    ) -> None:
        super().__init__(**kwargs)
        fix = '; set it to the number of pairs in the training set'
        check_count('num_samples', num_samples, fix=fix)
        check_ascending(tau_min=tau_min, tau=tau)
        self.num_samples = num_samples
        self.tau_min = float(tau_min)
        self.image_tau = nn.Parameter(torch.full((num_samples,), float(tau)))
        self.text_tau = nn.Parameter(torch.full((num_samples,), float(tau)))

    def temperatures(self, sample_idx: Tensor) -> list[Tensor]:
        """(n,) temperatures of the images and of the texts, >= float32."""
        found = []
        for tau in (self.image_tau, self.text_tau):
            # The parameter itself is clamped: outside the bounds a clamped value has no gradient,
            # so it could not return.
            with torch.no_grad():
                tau.clamp_(min=self.tau_min)
            found.append(at_least_float32(tau[sample_idx.to(tau.device)]))
        return found

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """Mean over image and text of each sample."""
        check_sample_ids(batch.ids, len(batch.ids), self.num_samples)
        taus = self.temperatures(batch.ids)
        image_terms, text_terms = batch.terms(taus)
        with torch.no_grad():
            self.diagnostics |= {
                'image_tau_mean': self.image_tau.mean(),
                'text_tau_mean': self.text_tau.mean(),
            }
        return (info_nce_losses(image_terms) + info_nce_losses(text_terms)) / 2
