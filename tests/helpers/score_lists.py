"""Inputs of ranking functions, and which way sums over pairs are computed."""

from contextlib import contextmanager
from unittest import mock

import torch

from mmrank.losses.pairs import pair_sums


def joined(pos, neg):
    """Positives and negatives as ``scores, is_positive``; the last dimension is the list."""
    is_positive = torch.cat([torch.ones_like(pos), torch.zeros_like(neg)], -1).bool()
    return torch.cat([pos, neg], -1), is_positive


@contextmanager
def summed_by(method):
    """Inside, the one-sided Huber is summed by ``'intervals'`` or by ``'pairs'``."""
    limit = {'intervals': -1, 'pairs': 2**62, 'auto': None}[method]
    if limit is None:
        yield
        return
    with mock.patch.multiple(pair_sums, DENSE_PAIRS=limit, _FEW_POSITIVES=-1):
        yield
