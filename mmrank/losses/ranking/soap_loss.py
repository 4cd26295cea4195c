"""SOAP as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.ranking.soap import soap_of_ranks, surrogate_ranks
from mmrank.gathering import all_gather_lists
from mmrank.losses.pairs.surrogates import SquaredHinge
from mmrank.state.sample_ranks import SampleRanks

from .ranking_loss import RankedLists, RankingLoss


class SOAPLoss(RankingLoss):
    """Average precision with moving averages of each positive's ranks.

    ``mean_i 1 - u_i1/u_i2``: u_i1 and u_i2 are moving averages of the surrogate ranks of positive
    i, among the positives and among all, from the batches that showed it. Source: Qi et al.,
    Stochastic Optimization of
    Areas Under Precision-Recall Curves with Provable Convergence, NeurIPS 2021.

    The state is saved and the same on all ranks. With ``scope='global'`` it
    is that of a single process, with ``scope='local'`` each rank ranks the positives that it has.

    Args:
        num_samples: Number of samples in the training set, or more.
        num_classes: Number of classes C.
        margin: Margin of the squared hinge in units of the (activated)
            scores, > 0. The authors take 0.6 to 1 for sigmoid scores.
        gamma: Weight of the batch in the moving averages, in (0, 1]. The authors' code has 0.1 to
            0.9, by data set.
        mode: ``per_class``: one ranking per class. ``flatten``: one in all.
        load_state: False resets the averages when a checkpoint is loaded.
        storage: ``device``: each rank has all averages. ``sharded``: they are spread over the
            ranks, see :class:`mmrank.state.SampleState`.
        **kwargs: ``activation``, ``scope``, ``loss_weight``, ``use_sigmoid`` and ``reduction`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = True
    keeps_samples = True

    saturation_advice = (
        'There are too many negatives for a positive: use '
        'mmrank.PositiveRateSampler, or raise the learning rate'
    )

    def __init__(
        self,
        num_samples: int,
        num_classes: int = 1,
        margin: float = 1.0,
        gamma: float = 0.9,
        mode: str = 'per_class',
        load_state: bool = True,
        storage: str = 'device',
        **kwargs,
    ) -> None:
        super().__init__(num_classes=num_classes, mode=mode, **kwargs)
        self.num_samples = num_samples
        self.margin = SquaredHinge(margin).tau
        self.ranks = SampleRanks(num_samples, num_classes, gamma, load_state, storage)

    def forward(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        *,
        sample_idx: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of all scores of a batch.

        Args:
            cls_score: (n, C) raw scores, any float dtype.
            target: (n,) class indices, C = background, or (n, C) of 0 and 1.
            weight: (n,) or (n, C); entries that are not > 0 are ignored.
            avg_factor: Not used.
            reduction_override: Only None is supported.
            sample_idx: (n,) integer index of each row in the training set.

        Returns:
            Scalar in [0, 1] times ``loss_weight``; 0, still attached to the graph, when there is no
            positive.

        Raises:
            ValueError: If shapes, class counts or indices do not fit.
            TypeError: If the scores are no floats or the indices no integers.
        """
        lists = self.one_vs_all_lists(cls_score, target, weight, reduction_override)
        if sample_idx is None or sample_idx.shape != cls_score.shape[:1]:
            found = None if sample_idx is None else tuple(sample_idx.shape)
            raise ValueError(
                f'SOAPLoss needs sample_idx of shape ({len(cls_score)},), the '
                f'index of each row in the training set, got {found}; use '
                "mmrank.OneVsRestHead and keep 'sample_idx' in meta_keys of "
                'PackInputs'
            )
        entries = self.ranks.entries_of(sample_idx, cls_score.device)
        # float64 holds every index.
        entries = self.lists_of(entries).double()
        return self.loss_weight * self.rank(*lists, lambda columns: entries.gather(1, columns))

    def embedding_loss(self, batch) -> Tensor:
        """Refuse retrieval: the state is one per sample, not per query.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            'SOAPLoss keeps averages of the samples of a classifier; for '
            'retrieval use mmrank.StableAPLoss or mmrank.SmoothAPLoss'
        )

    def list_losses(self, lists: RankedLists) -> Tensor:
        """SOAP of the lists; their values are places in the state."""
        pos_mask = lists.pos_mask
        entries = lists.values.detach().long()
        batch = surrogate_ranks(
            lists.pos,
            lists.scores,
            margin=self.margin,
            pos_mask=pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        moving = self.ranks.step(entries, batch)
        losses = soap_of_ranks(batch, moving, pos_mask)
        self._keep(entries, batch, pos_mask, lists.state_group)
        self.diagnostics = {
            'num_positive': pos_mask.sum(),
            'u_positive': self._mean(moving[0], pos_mask),
            'u_all': self._mean(moving[1], pos_mask),
            'argument': self._mean(moving[1] / moving[0].clamp(min=1e-12) - 1, pos_mask),
        }
        loss = self.reduce_lists(losses, pos_mask.any(1))
        return loss.to(torch.promote_types(lists.scores.dtype, torch.float32))

    @torch.no_grad()
    def _keep(self, entries, batch, pos_mask, others) -> None:
        """Store a batch; that of all ranks, if ``others`` have theirs."""
        if others is not None:
            lists = len(pos_mask)
            joined, masks = all_gather_lists(
                torch.cat([entries.double(), *batch]), pos_mask.repeat(3, 1), others
            )
            entries, batch = joined[:lists].long(), joined[lists:]
            batch, pos_mask = batch.view(2, lists, -1), masks[:lists]
        self.ranks.update(entries, batch, pos_mask)

    @staticmethod
    def _mean(values: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)
