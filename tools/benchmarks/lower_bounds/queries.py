"""Losses of a retrieval batch compared with the plain matrix of cosines."""

import torch
from torch.nn.functional import normalize

from mmrank.losses import EmbeddingBatch
from mmrank.registry import MODELS

from .row import Row, Sides, Sizes, backward_step, installed

LOSSES = (
    ('StableAPLoss', dict(mode='per_class', mean_scope='global', tau=0.1, score_range=(-1, 1))),
    ('SOPRCLoss', {}),
    ('SmoothAPLoss', {}),
    ('RecallAtKLoss', {}),
    ('HAPLoss', {}),
    ('NDCGLoss', {}),
    ('LambdaLoss', {}),
    ('SupAPLoss', {}),
    ('ROADMAPLoss', {}),
    ('APLoss', dict(delta=0.05)),
    ('DRLoss', {}),
    ('ListwiseAPLoss', {}),
    ('BlackBoxAPLoss', {}),
    ('AUCLoss', {}),
    ('AUCLoss', dict(surrogate='one_sided_huber', tau=0.5)),
)
PML_LOSSES = ('ContrastiveLoss', 'TripletMarginLoss', 'MultiSimilarityLoss', 'FastAPLoss')


def query_rows(sizes: Sizes) -> list[Row]:
    n = sizes.queries
    work = f'{n} lists of {n}, classes of {sizes.class_size}, {sizes.dimensions}-d'
    floor = 'the cosines, forward and backward'

    def row(name, setting, settings):
        return Row(name, setting, work, floor, lambda: _sides(name, settings, sizes))

    found = [
        row(name, settings.get('surrogate', 'retrieval'), settings) for name, settings in LOSSES
    ]
    return found + [row('PMLLoss', name, dict(loss=dict(type=name))) for name in PML_LOSSES]


def _sides(name: str, settings: dict, sizes: Sizes) -> Sides:
    g = torch.Generator().manual_seed(0)
    classes = max(sizes.queries // sizes.class_size, 1)
    labels = torch.arange(sizes.queries) % classes
    x = torch.randn(sizes.queries, sizes.dimensions, generator=g)
    x += torch.randn(classes, sizes.dimensions, generator=g)[labels]
    leaf = normalize(x).to(sizes.device).requires_grad_()
    labels = labels.to(sizes.device)

    loss = MODELS.build(dict(type=f'mmrank.{name}', **settings))
    loss = loss.to(sizes.device)

    def batch() -> EmbeddingBatch:
        return EmbeddingBatch.of_one_batch(leaf, labels)

    return Sides(
        backward_step(lambda: batch().scores().sum(), [leaf]),
        backward_step(lambda: loss.embedding_loss(batch()), [leaf]),
        _peers(name, settings, leaf, labels),
    )


def _peers(name: str, settings: dict, leaf, labels) -> dict:
    """The same loss of pytorch-metric-learning."""
    if name != 'PMLLoss' or not installed('pytorch_metric_learning'):
        return {}
    from pytorch_metric_learning import losses

    loss = getattr(losses, settings['loss']['type'])()
    return {'pytorch-metric-learning': backward_step(lambda: loss(leaf, labels), [leaf])}
