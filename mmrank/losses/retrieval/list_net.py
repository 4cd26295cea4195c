"""ListNet: cross-entropy between the softmax of the labels and the softmax of the scores."""

import torch
from torch import Tensor

from mmrank.losses.lists import RankedLists
from mmrank.tensors import clamp_infinite

from .hierarchical import LevelLoss, graded_entries


class ListNetLoss(LevelLoss):
    """ListNet, top one: ``-sum_j softmax(l)_j log softmax(s)_j`` of levels l and scores s.

    Linear in the list. The mean is over the lists that have a positive. Source: Cao et al.,
    Learning to Rank: From Pairwise Approach to Listwise Approach, ICML 2007, section 4.2.
    """

    takes_weights = True
    cost = 'scores'

    def losses(self, lists: RankedLists) -> Tensor:
        scores, level, counts = graded_entries(lists)
        # An entry of weight w is w entries. What does not count is far below, and no NaN.
        log_counts = counts.double().log()
        scores = torch.where(counts > 0, clamp_infinite(scores.double()), -1e100)
        target = torch.where(counts > 0, level + log_counts, -1e100).softmax(1)
        total = torch.where(counts > 0, scores + log_counts, -1e100).logsumexp(1, keepdim=True)
        terms = torch.where(counts > 0, target * (total - scores), 0)
        return torch.where(lists.has_positive, terms.sum(1), 0)
