"""Registers the losses. mmengine imports this when a config names one; losses need torch alone."""

from torch import nn

from mmrank import losses
from mmrank.registry import MODELS

#: Bases of losses of your own, and what a loop of your own calls.
_NOT_IN_CONFIGS = {
    'ClassCountLoss',
    'ContrastiveLoss',
    'EmbeddingLoss',
    'ErrorDrivenLoss',
    'HeadLoss',
    'PointwiseLoss',
    'RankingLoss',
    'StatelessRankingLoss',
}

for name in losses.__all__:
    loss = getattr(losses, name)
    if name.endswith('Loss') and name not in _NOT_IN_CONFIGS and issubclass(loss, nn.Module):
        MODELS.register_module(module=loss)
