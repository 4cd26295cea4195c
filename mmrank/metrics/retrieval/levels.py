"""Exact H-AP and NDCG@k of labels on several levels, a block of queries at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.errors import UserError
from mmrank.metrics.retrieval.input import check_classes, prepare_sets, query_blocks
from mmrank.metrics.retrieval.metrics import check_recall_at

# Bytes of temporary tensors for a score.
_BYTES_PER_SCORE = 120


class _LevelFigures(NamedTuple):
    """Figures per query, float64 in [0, 1], NaN without an entry that shares a level."""

    hap: Tensor  # (Q,)
    ndcg: Tensor  # (Q, K), a column for each k


@torch.no_grad()
def level_metrics(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    *,
    ndcg_at: Sequence[int] = (1, 10, 100, 1000),
    alpha: float = 1.0,
) -> _LevelFigures:
    """H-AP and NDCG@k of each query.

    An entry that shares the first l of L levels with the query has the relevance ``u = (l/L)^alpha
    / n_l``, n_l such entries in its gallery, and the gain ``2^l - 1``. ``H-AP = 1/sum_i u_i sum_i
    1/rank_i sum_{k at or above i} min(u_i, u_k)``, ties as ranked above: one level gives AP of
    ``retrieval_metrics``. NDCG@k is the sum over the first k of the gains over ``log2(1 + place)``,
    divided by the sum of the best ranking; among ties the lower gains come first. Source: HAPPIER
    (Ramzi et al., ECCV 2022), section 3; its code also counts the query in n_l.

    Args:
        queries: (Q, D) embeddings of any float dtype.
        query_labels: (Q, L) integers from coarse to fine; a class of a level lies in one class of
            the level before.
        gallery: (N, D) embeddings; None for the queries themselves, each left out of its own.
        gallery_labels: (N, L) integers.
        ndcg_at: The k, integers of at least 1.
        alpha: Power of the level in the relevance.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
        >>> labels = torch.tensor([[0, 0], [0, 1], [0, 0], [1, 2]])
        >>> level_metrics(x, labels, ndcg_at=[2]).ndcg[:, 0]
        tensor([1., 1., 1., nan], dtype=torch.float64)
    """
    check_recall_at(ndcg_at)
    levels = query_labels if gallery_labels is None else gallery_labels
    if query_labels.dim() != 2 or levels.dim() != 2 or levels.size(1) != query_labels.size(1):
        raise UserError(
            'labels must be (rows, levels) of one number of levels, got shapes '
            f'{tuple(query_labels.shape)} and {tuple(levels.shape)}',
            'labels[:, None] of one level',
        )
    _check_levels(torch.cat([query_labels, levels]))
    finest = None if gallery_labels is None else gallery_labels[:, -1]
    sets = prepare_sets(queries, query_labels[:, -1], gallery, finest)
    count = len(levels)
    place = torch.arange(2, count + 2, device=levels.device).double().log2()
    every = torch.arange(len(queries), device=levels.device)
    found = []
    for part in query_blocks(every, _BYTES_PER_SCORE * count):
        scores = sets.scores(part)
        level = (query_labels[part, None] == levels).sum(2)
        if sets.ids is not None:  # itself
            scores.scatter_(1, part[:, None], -torch.inf)
            level.scatter_(1, part[:, None], 0)
        found.append(_figures(scores, level, query_labels.size(1), alpha, place, ndcg_at))
    return _LevelFigures(*(torch.cat(x) for x in zip(*found)))


def _check_levels(labels: Tensor) -> None:
    """Raise UserError where a class of a level lies in two classes of the level before."""
    check_classes(labels, 'labels')
    for number in range(1, labels.size(1)):
        pairs = labels[:, number - 1 : number + 1].unique(dim=0)
        if len(pairs) > len(labels[:, number].unique()):
            raise UserError(
                f'level {number} of the labels does not refine level {number - 1}: one class of it '
                'is in two classes of the level before',
                f'labels[:, {number}] = labels[:, : {number + 1}].unique(dim=0, '
                'return_inverse=True)[1], of queries and gallery together, where classes are '
                'numbered inside their parent; levels go from coarse to fine',
            )


def _figures(
    scores: Tensor, level: Tensor, num_levels: int, alpha: float, place: Tensor, at: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """(B,) H-AP and (B, K) NDCG of (B, N) scores and numbers of shared levels."""
    level, order = level.sort(1)
    best = (2.0 ** level.flip(1).double() - 1) / place
    # Stable: among ties the lower levels stay in front.
    ordered, by_score = scores.gather(1, order).neg().sort(dim=1, stable=True)
    level = level.gather(1, by_score)
    end = torch.searchsorted(ordered, ordered, right=True)
    gain = (2.0 ** level.double() - 1) / place
    relevance = []
    above = []
    own = torch.zeros_like(gain)
    for m in range(1, num_levels + 1):
        here = level == m
        number = here.double().sum(1, keepdim=True)
        relevance.append((m / num_levels) ** alpha / number.clamp(min=1))
        above.append(pad(here.double().cumsum(1), (1, 0)).gather(1, end))
        own = torch.where(here, relevance[-1], own)
    heights = sum(x * torch.minimum(own, u) for x, u in zip(above, relevance))
    hap = (heights / end).sum(1) / own.sum(1)  # 0/0 = NaN without a relevant entry
    ndcg = [gain[:, :k].sum(1) / best[:, :k].sum(1) for k in at]
    return hap, torch.stack(ndcg, 1) if ndcg else gain[:, :0]
