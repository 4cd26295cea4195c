"""InfoNCE and FlatCLR: the negatives of a batch, with one temperature."""

import math

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.distributed import all_reduce_sum, joined_group, scale_gradient
from mmrank.losses.embeddings import EmbeddingBatch
from mmrank.settings import check_not_negative, check_positive
from mmrank.tensors import as_divisor

from .base import ContrastedBatch, ContrastiveLoss
from .terms import NegativeTerms


def log_sum_of_negatives(terms: NegativeTerms) -> Tensor:
    """``log sum_z exp(h(z)/tau)`` of each anchor; 0 if it has no negatives.

    (n,), differentiable. Its sigmoid is the softmax probability of all negatives together.
    """
    return torch.where(terms.count > 0, terms.log_mean + terms.log_count, 0)


def info_nce_losses(terms: NegativeTerms, positive_in_denominator: bool = True) -> Tensor:
    """InfoNCE of each anchor, see :class:`InfoNCELoss`; 0 for one without negatives."""
    log_sum = log_sum_of_negatives(terms)
    if positive_in_denominator:
        positives = terms.log_positives
        positives = torch.zeros_like(log_sum) if positives is None else positives
        log_sum = torch.logaddexp(log_sum, positives)
    return torch.where(terms.count > 0, log_sum, log_sum * 0)


class InfoNCELoss(ContrastiveLoss):
    """Contrastive loss with one temperature over the negatives of the batch.

    ``-log exp(<a, a+>/tau) / (exp(<a, a+>/tau) + sum_z exp(<a, z>/tau))``, the mean over the
    anchors a. Source: van den Oord et al., Representation Learning with Contrastive Predictive
    Coding, 2018. With two augmentations it is SimCLR (ICML 2020), eq. 1; with ``bimodal=True`` and
    images and texts as views it is CLIP (ICML 2021) of a fixed temperature. With ``labels`` it is
    SupCon, Khosla et al., Supervised Contrastive Learning, NeurIPS 2020, eq. 2, of two views or
    more; of one view it is a loss of :class:`EmbeddingLoss`, alone or as a part of
    :class:`SumLoss`.

    Args:
        tau: Temperature > 0. SimCLR takes 0.5 for CIFAR-10, 0.1 for ImageNet.
        bimodal: Contrast each view with the other one of all other samples; else with both of them.
        hardness_strength: Weigh each negative z of an anchor a by ``exp(strength * <a, z>)``, a
            constant in backward. Source: Lan et al., LLaVE, 2025, eq. 5, which takes 9. As in
            sentence-transformers with ``hardness_mode='in_batch_negatives'``, in both directions.
    """

    positive_in_denominator = True

    def __init__(
        self, tau: float = 0.5, bimodal: bool = False, hardness_strength: float = 0.0, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        check_not_negative(hardness_strength=hardness_strength)
        self.tau = float(tau)
        self.bimodal = bimodal
        self.hardness_strength = float(hardness_strength)
        self.takes_labels = not hardness_strength
        self.two_views = bimodal or not self.takes_labels

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        strength = self.hardness_strength
        if not strength:
            true_negatives = not self.positive_in_denominator
            terms = self.terms(batch, self.tau, self.bimodal, true_negatives)
        else:
            # <a, z> (1 + strength tau), with the gradient of <a, z>; not for the positive.
            factor = (strength * self.tau) ** 0.5

            def harder(rows: Tensor) -> Tensor:
                return torch.cat([rows, factor * rows.detach()], 1)

            weighed = batch.mapped(lambda samples: samples.with_rows(harder))
            terms = self.terms(weighed, self.tau, self.bimodal)
            positive = (batch.local.views[0] * batch.local.views[1]).sum(1).detach()
            terms.log_mean = terms.log_mean + strength * positive
        return info_nce_losses(terms, self.positive_in_denominator).mean(0)

    def embedding_loss(self, batch: EmbeddingBatch) -> Tensor:
        """Scalar mean over the queries with a positive; each is compared with its gallery."""
        self._check_takes_labels()
        scores = batch.scores() / self.tau
        group = joined_group(self)
        if group is not None:
            scores = scale_gradient(scores, group.size())
        weight = torch.ones_like(scores) if batch.weight is None else batch.weight.to(scores)
        is_positive = batch.is_positive()
        is_other = ~batch.is_itself if self.positive_in_denominator else batch.is_negative()
        compared = scores.masked_fill(~is_other, -math.inf)
        best = pad(compared.detach(), (0, 1), value=torch.finfo(scores.dtype).min).amax(1)
        if group is not None:
            dist.all_reduce(best, dist.ReduceOp.MAX, group)
        powers = (compared - best[:, None]).exp() * weight
        counted = is_positive * weight
        sums = powers.sum(1), (scores * counted).sum(1), counted.sum(1)
        total, positive, count = all_reduce_sum(torch.stack(sums), group)
        has_both = (total > 0) & (count > 0)
        losses = torch.where(has_both, total, 1).log() + best - positive / as_divisor(count)
        losses = torch.where(has_both, losses, 0 * positive)
        counts = has_both.to(scores.dtype)
        if batch.query_weight is not None:
            counts = counts * batch.query_weight.to(counts)
        return self.loss_weight * (losses * counts).sum() / as_divisor(counts.sum())


class FlatCLRLoss(InfoNCELoss):
    """FlatNCE: each anchor's gradient keeps its size when the anchor is easy.

    The paper's loss is ``S / sg[S]`` with ``S = sum_z exp(h(z)/tau)`` over the negatives, h as in
    :class:`ISogCLRLoss`: its value is always 1. The value here is ``log S``, which has the same
    gradient and shows what is learnt. It is below 0 once the positive outweighs all negatives.
    Source: Chen et al., Simpler, Faster, Stronger: Breaking The log-K Curse On Contrastive Learners
    With FlatNCE, 2021.
    """

    positive_in_denominator = False
