"""Each option takes a random ranking to a nearly perfect one."""

import pytest
import torch
from random_batches import one_vs_rest, rows_with_background

from mmrank.losses import SOPRCLoss, StableAPLoss


class LogisticStableAP(StableAPLoss):
    surrogate_name = 'logistic'


PER_CLASS = dict(num_classes=4, mode='per_class')
PROBABILITIES = dict(activation='sigmoid', score_range=(0.0, 1.0))
LOGITS = dict(tau1=1.0, tau2=0.05, score_range=(-5.0, 5.0))


@pytest.mark.parametrize(
    ('loss', 'settings'),
    [
        (StableAPLoss, {}),
        (StableAPLoss, PER_CLASS),
        (StableAPLoss, dict(PROBABILITIES, tau=0.3)),
        (LogisticStableAP, {}),
        (SOPRCLoss, dict(LOGITS, prior='batch')),
        (SOPRCLoss, dict(LOGITS, prior=0.5, **PER_CLASS)),
        (SOPRCLoss, dict(LOGITS, prior=0.5, lam1=0.1, lam2=0.1)),
        (SOPRCLoss, dict(PROBABILITIES, prior=0.5, tau1=0.3, tau2=0.05)),
    ],
)
def test_options_train_the_ranking(loss, settings):
    scores, target = rows_with_background(60, 4, dtype=torch.float32)
    scores.requires_grad_()
    loss = loss(**settings)
    optimizer = torch.optim.Adam([scores], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        loss(scores, target).backward()
        optimizer.step()
    labels = one_vs_rest(scores, target)
    lists = [(scores.flatten(), labels.flatten())]
    if settings.get('mode') == 'per_class':
        lists = list(zip(scores.t(), labels.t()))
    for values, is_positive in lists:
        wrong = values[is_positive][:, None] <= values[~is_positive]
        assert wrong.double().mean() < 0.01
