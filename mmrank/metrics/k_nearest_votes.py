"""Votes of the nearest labelled neighbours."""

import torch
from torch import Tensor

from mmrank.metrics.top_k_inner_product import top_k_inner_product
from mmrank.settings import check_positive
from mmrank.tensors import at_least_float32, check_index, check_tensors


def k_nearest_votes(
    queries: Tensor,
    bank: Tensor,
    bank_labels: Tensor,
    num_classes: int,
    k: int = 200,
    tau: float = 0.07,
) -> Tensor:
    """Votes of the k most similar samples of a bank.

    A neighbour z votes for its class with ``exp(<q, z>/tau)``. Source: Wu et al., Unsupervised
    Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018, section 3.4. A block of
    similarities is in memory at a time.

    Args:
        queries: (Q, D) features; of length 1 for cosines.
        bank: (N, D) features. The very tensor ``queries``: no query votes for itself.
        bank_labels: (N,) integer classes in ``[0, num_classes)``.
        num_classes: C.
        k: Number of neighbours; all samples of a smaller bank vote.
        tau: Temperature > 0; a large one weights all neighbours equally.

    Returns:
        (Q, C), at least float32: shares of the votes, rows sum to 1, or 0 where the bank is empty.
    """
    check_tensors(queries=queries, bank=bank, bank_labels=bank_labels)
    check_positive(tau=tau)
    is_one_width = queries.dim() == 2 and bank.shape[1:] == queries.shape[1:]
    if not is_one_width or bank_labels.shape != bank.shape[:1]:
        raise ValueError(
            'queries must be (Q, D), bank (N, D) and bank_labels (N,), got '
            f'{tuple(queries.shape)}, {tuple(bank.shape)} and {tuple(bank_labels.shape)}'
        )
    fix = 'num_classes of the data set; keep = bank_labels >= 0; bank[keep] and bank_labels[keep]'
    check_index('bank_labels', bank_labels, num_classes, fix)
    excluded = torch.arange(len(queries) if bank is queries else 0, device=queries.device)
    queries = at_least_float32(queries)
    bank = bank.to(queries.dtype)
    votes = queries.new_zeros(queries.size(0), num_classes)
    if bank.size(0) == 0:
        return votes
    found = top_k_inner_product(queries, bank, k, excluded, excluded)
    # Columns beyond a small bank, and of the query itself, are -1 and have no vote.
    scores, nearest = (x[:, : bank.size(0)] for x in found)
    weights = (scores / tau).softmax(1).masked_fill(nearest < 0, 0)
    nearest = nearest.clamp(min=0)
    return votes.scatter_add_(1, bank_labels[nearest].long(), weights)
