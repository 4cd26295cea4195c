"""Warnings of the first batch of a loss: numbers of another meaning, which raise no error.

Later batches are not looked at, as the host would wait for a device.
"""

import warnings

import torch
from torch import Tensor, nn

from mmrank.autograd import inside_transform, is_compiling

_LEAST_ROWS = 4


def is_first_batch(loss: nn.Module, values: Tensor) -> bool:
    """Whether a loss is called for the first time, with values that the host may look at."""
    if is_compiling() or inside_transform() or values.is_meta or loss.__dict__.get('_has_looked'):
        return False
    loss.__dict__['_has_looked'] = True
    return len(values) >= _LEAST_ROWS


@torch.no_grad()
def warn_of_first_batch(
    loss: nn.Module, scores: Tensor, target: Tensor, by_head: bool = False
) -> None:
    """Warn of embeddings in place of scores, and of probabilities in place of logits."""
    if by_head or not is_first_batch(loss, scores):
        return
    name = type(loss).__name__
    if scores.dim() == 2 and target.dim() == 1 and scores.size(1) > 1:
        is_unit = bool(((scores.double().norm(dim=1) - 1).abs() < 1e-2).all())
        if is_unit and not bool(((scores == 0) | (scores == 1)).all()):
            warnings.warn(
                f'{name} takes the rows of cls_score, all of length 1, as scores of '
                f'{scores.size(1)} classes. Fix: if they are embeddings '
                f'mmrank.EmbeddingLoss({name}())(embeddings, classes)',
                stacklevel=5,
            )
            return
    within = ((scores >= 0) & (scores <= 1)).all() & ((scores > 0) & (scores < 1)).any()
    if getattr(loss, 'takes_logits', False) and bool(within):
        warnings.warn(
            f'{name} takes logits, and all scores of the first batch are in [0, 1], as '
            'probabilities are. Fix: the scores before sigmoid or softmax, or scores.logit()',
            stacklevel=5,
        )


def warn_of_one_sample(loss: nn.Module, sample_idx: Tensor) -> None:
    """Warn where all rows are of one sample, so that nothing is a negative."""
    if is_first_batch(loss, sample_idx) and bool((sample_idx == sample_idx[0]).all()):
        warnings.warn(
            f'all rows of the first batch of {type(loss).__name__} have sample_idx='
            f'{int(sample_idx[0])}: rows of one sample are not negatives of each other, so nothing '
            'is learnt. Fix: sample_idx is the place of each sample in the training set',
            stacklevel=6,
        )
