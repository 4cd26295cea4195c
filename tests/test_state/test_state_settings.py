"""Settings that a state refuses when it is built, by their name."""

import math

import pytest

from mmrank import state

#: State, its settings, and what the error says.
VALUES = [
    ('ClassPrior', dict(prior=0.0), r'prior must be in \(0, 1\)'),
    ('ClassPrior', dict(prior=[0.1, 1.0], size=2), r'prior must be in \(0, 1\)'),
    ('ClassPrior', dict(prior=[0.1, 0.2], size=3), 'prior holds 2 values, but num_classes=3'),
    ('ClassPrior', dict(prior='counts'), 'requires num_classes'),
    ('ClassPrior', dict(prior='data', size=3), "prior='data' is unknown"),
    ('ClassPrior', dict(prior=0.1, maximum=0.1), 'set prior to that number'),
    ('ClassPrior', dict(prior='counts', size=3, maximum=1.0), 'max_prior must be in'),
    ('CrossBatchMemory', dict(size=0, dim=2), 'size'),
    ('CrossBatchMemory', dict(size=2, dim=2.0), 'dim'),
    ('CrossBatchMemory', dict(size=2, dim=2, start_iter=-1), 'start_iter'),
    ('LabelCounts', dict(num_classes=1, positives=[20]), 'leaves a class without negatives'),
    ('MeanPositiveScore', dict(size=0), 'size must be'),
    ('MeanPositiveScore', dict(momentum=0.0), 'momentum must be'),
    ('MeanPositiveScore', dict(momentum=1.5), 'momentum must be'),
    ('MeanPositiveScore', dict(mode='fast'), "mode='fast' is unknown"),
    ('MeanPositiveScore', dict(mode='fixed'), "mean_mode='fixed' is unknown. Fix"),
    ('MeanPositiveScore', dict(mode=math.nan), 'mean_mode=nan must be finite. Fix'),
    ('ScoreVector', dict(size=0), 'size must be'),
    ('ScoreVector', dict(length=1.5), 'length must be'),
    ('ScoreVector', dict(momentum=0.0), 'momentum must be'),
    ('ScoreVector', dict(mode='plain'), "mode='plain' is unknown"),
    ('ScoreVector', dict(score_range=(1.0, -1.0)), 'score_range must be'),
    ('SelfBalance', dict(period=0), 'period'),
]


@pytest.mark.parametrize(('name', 'settings', 'message'), VALUES)
def test_a_value_is_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        getattr(state, name)(**settings)
