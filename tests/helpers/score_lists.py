"""Inputs of ranking functions, and which way sums over pairs are computed."""

from contextlib import contextmanager
from unittest import mock

import torch

from mmrank.losses import pairs
from mmrank.losses.auc.auc import MAUCLoss, _mauc_of_classes
from mmrank.losses.pairs import OneSidedHuber
from mmrank.losses.pairs_smooth import pairwise_surrogate_sum
from mmrank.losses.plain_lists import like_scores, split_lists


def joined(pos, neg):
    """Positives and negatives as ``scores, is_positive``; the last dimension is the list."""
    is_positive = torch.cat([torch.ones_like(pos), torch.zeros_like(neg)], -1).bool()
    return torch.cat([pos, neg], -1), is_positive


def one_sided_huber(x, tau):
    """``1 - 2x/tau`` for ``x < 0``, ``(1 - x/tau)^2`` up to tau, 0 beyond; autograd derives it."""
    z = 1 - x / tau
    return torch.where(x < 0, 2 * z - 1, z.clamp(min=0).square())


def plain_huber(x, tau):
    """The same of a plain float."""
    if x < 0:
        return 1 - 2 * x / tau
    return max(1 - x / tau, 0) ** 2


def one_sided_sigmoid(x, tau):
    """``tanh(-x / (2 tau))`` for ``x < 0``, else 0; autograd derives it."""
    return torch.tanh(x.clamp(max=0) / (-2 * tau))


def surrogate_mean(pos, neg, tau, method='auto'):
    """(n+,) ``l_i = mean_j l(s_i - t_j)`` with the one-sided Huber, 0 without negatives.

    Source: stable AP (2025), eq. 2.
    """
    with summed_by(method):
        total = pairwise_surrogate_sum(pos[None], neg[None], OneSidedHuber(tau))[0]
    dtype = torch.promote_types(torch.promote_types(pos.dtype, neg.dtype), torch.float32)
    return (total / max(neg.numel(), 1)).to(dtype)


def mauc_losses(scores, is_positive, mask=None, **settings):
    """(C,) losses of :class:`mmrank.losses.MAUCLoss` of (C, N) scores, class by class."""
    loss = MAUCLoss(**settings)
    lists = split_lists(scores, is_positive, mask)
    return like_scores(_mauc_of_classes(lists, loss.tau), scores)


@contextmanager
def summed_by(method):
    """Inside, the one-sided Huber is summed by ``'intervals'`` or by ``'pairs'``."""
    limit = {'intervals': -1, 'pairs': 2**62, 'auto': None}[method]
    if limit is None:
        yield
        return
    with mock.patch.multiple(pairs, DENSE_PAIRS=limit, _FEW_POSITIVES=-1):
        yield
