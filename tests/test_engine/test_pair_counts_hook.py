"""The hook that tells losses the training pairs."""

import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mmrank.datasets.interactions import Interactions
from mmrank.engine.hooks import PairCountsHook
from mmrank.losses import InBatchLoss


def runner_of(model, dataset):
    return SimpleNamespace(
        model=model,
        logger=logging.getLogger('test'),
        train_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)),
    )


def test_every_loss_is_told():
    pairs = Interactions.of_pairs([1, 0, 0], [0, 0, 1], 'ab', 'xy')
    model = nn.ModuleList([InBatchLoss(), InBatchLoss('in_batch')])
    PairCountsHook().before_train(runner_of(model, SimpleNamespace(interactions=pairs)))
    for loss in model:
        assert loss.counts.row_counts.tolist() == [2, 1]
        assert loss.counts.col_counts.tolist() == [2, 1]


def test_data_set_without_pairs():
    with pytest.raises(TypeError, match='list has no positive pairs'):
        PairCountsHook().before_train(runner_of(InBatchLoss(), [1, 2]))


def test_model_without_such_a_loss():
    PairCountsHook().before_train(runner_of(torch.nn.Linear(1, 1), [1, 2]))


def test_column_without_a_pair():
    pairs = Interactions.of_pairs([1, 0], [0, 0], 'ab', 'xy')
    with pytest.raises(ValueError, match=r'col_counts\[1\]=0'):
        PairCountsHook().before_train(runner_of(InBatchLoss(), SimpleNamespace(interactions=pairs)))
