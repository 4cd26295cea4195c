"""Recall@k with sigmoids for the ranks and for the cut-off."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.distributed import joined_group
from mmrank.errors import UserError
from mmrank.losses.base import Losses, StatelessRankingLoss
from mmrank.losses.embeddings import EmbeddingBatch
from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs_smooth import Sigmoid, sum_over_negatives
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.tensors import as_divisor

#: Temperature of the cut-off in ranks: a positive more than a few beyond k has no gradient.
RANK_TAU = 1.0


def recall_at_k_loss(
    scores: Tensor,
    is_positive: Tensor,
    *,
    mask: Tensor | None = None,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    tau: float = 0.01,
) -> Tensor:
    """Recall@k surrogate of each list, the mean over several k.

    ``1 - mean_k min(k, sum_i G(k - r_i)) / min(k, n+)`` with the rank of a positive
    ``r_i = 1 + sum_{j != i} G((s_j - s_i) / tau)`` among all scores and G the sigmoid. Source:
    Patel et al., Recall@k Surrogate Loss with Large Batches and Similarity Mixup, CVPR 2022, with
    the limit k on the sum and in the normaliser that the authors' code has.

    See :func:`split_lists` for the lists and :class:`mmrank.losses.RecallAtKLoss` for the options.

    Example:
        >>> scores, is_positive = torch.tensor([0.9, 0.5, 0.2, -0.5]), torch.tensor([1, 0, 1, 0])
        >>> recall_at_k_loss(scores, is_positive, ks=(1, 2))
        tensor(0.4404)
    """
    _check(ks)
    lists = split_lists(scores, is_positive, mask)
    return like_scores(_recall_at_k(lists, Sigmoid(tau), ks), scores)


def _check(ks: Sequence[int]) -> None:
    if not isinstance(ks, Sequence) or isinstance(ks, str) or not ks or any(k < 1 for k in ks):
        raise UserError(f'ks must be numbers of at least 1, got {ks!r}. Fix: ks=(1, 2, 4, 8, 16)')


def _recall_at_k(lists: RankedLists, sigmoid: Sigmoid, ks: Sequence[int]) -> Tensor:
    mask = lists.pos_mask
    number = as_divisor(lists.num_positives())
    everything = lists.is_positive | lists.is_negative
    if lists.weight is not None:
        everything = torch.where(everything, lists.weight, 0)
    # The surrogate is twice the sigmoid. A positive meets itself at 1/2.
    rank = 0.5 + 0.5 * sum_over_negatives(lists, sigmoid, everything)
    recalls = []
    for k in ks:
        found = torch.where(mask, ((k - rank) / RANK_TAU).sigmoid(), 0)
        found = (lists.positives * found).sum(1)
        recalls.append(found.clamp(max=k) / number.clamp(max=k))
    loss = 1 - sum(recalls) / len(recalls)
    return torch.where(lists.has_positive, loss, 0)


class RecallAtKLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.recall_at_k_loss` of a batch.

    The query is left out of its own list, as in the paper; the authors' code counts it as an image
    above all others, so that its k is our k - 1.

    **Similarity mixup.** With ``mixup`` each pair of a class in the batch gives one more embedding,
    ``a z_i + (1 - a) z_j`` with a uniform in (0, 1): it is a query and in the gallery, its scores
    are mixtures of scores. 28 classes of 4 images have 168 such, and the loss 6 times the pairs.
    In training alone; the host waits for the number of pairs.

    Args:
        ks: The k, each at least 1.
        tau: Temperature of the ranks in units of the (activated) scores, > 0; 0.01 is for cosines.
        mixup: Whether to mix embeddings of a class, in retrieval.
    """

    takes_weights = True
    saturation_advice = 'All positives are far beyond k. Fix: larger ks'

    def __init__(
        self, ks: Sequence[int] = (1, 2, 4, 8, 16), tau: float = 0.01, mixup: bool = False, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        _check(ks)
        self.ks = ks
        self.mixup = mixup
        self.surrogate = Sigmoid(tau)

    def losses(self, lists: RankedLists) -> Tensor:
        return _recall_at_k(lists, self.surrogate, self.ks)

    def forward(self, *args, **kwargs) -> Losses:
        if self.mixup:
            what = 'mixup=True mixes embeddings, but RecallAtKLoss was called with scores'
            raise UserError(what, 'mixup=False, or embeddings into mmrank.EmbeddingLoss')
        return super().forward(*args, **kwargs)

    def embedding_loss(self, batch: EmbeddingBatch) -> Losses:
        if self.mixup and self.training:
            batch.refuse_weights('mixup=True of RecallAtKLoss')
            batch = _with_mixtures(batch, joined_group(self))
        return super().embedding_loss(batch)


def _with_mixtures(batch: EmbeddingBatch, group=None) -> EmbeddingBatch:
    """The batch and a mixture of each pair of queries of a class, as queries and in the gallery.

    The ranks of ``group`` have the same queries: they draw the same mixtures, and each has its
    share of these in its gallery.
    """
    queries = batch.queries
    labels = batch.query_labels
    itself = batch.is_itself
    first, second = (labels[:, None] == labels).triu(1).nonzero().unbind(1)
    share = torch.rand(len(first), 1, dtype=queries.dtype, device=queries.device)
    of_rank = slice(None)
    if group is not None:
        dist.broadcast(share, dist.get_global_rank(group, 0), group)
        of_rank = slice(dist.get_rank(group), None, dist.get_world_size(group))
    mixed = share * queries[first] + (1 - share) * queries[second]
    # An entry that neither of two images searches for is an empty slot of a memory.
    rows = torch.cat([itself, itself[first] & itself[second]])
    place = torch.arange(len(mixed), device=queries.device)
    columns = torch.cat([itself.new_zeros(len(queries), len(mixed)), place[:, None] == place])
    return replace(
        batch,
        queries=torch.cat([queries, mixed]),
        query_labels=torch.cat([labels, labels[first]]),
        gallery=torch.cat([batch.gallery, mixed[of_rank].to(batch.gallery.dtype)]),
        gallery_labels=torch.cat([batch.gallery_labels, labels[first][of_rank]]),
        is_itself=torch.cat([rows, columns[:, of_rank]], 1),
    )
