"""Losses of a retrieval batch compared with the plain matrix of cosines."""

import importlib.util

import torch
from torch.nn.functional import normalize

from mmrank.losses import EmbeddingBatch
from mmrank.registry import MODELS

from .row import Row, Sides, Sizes

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
    work = (
        f'{sizes.queries} lists of {sizes.gallery}, classes of '
        f'{sizes.class_size}, {sizes.dimensions}-d'
    )
    floor = 'the cosines, forward and backward'

    def row(name, setting, settings):
        return Row(name, setting, work, floor, lambda: _sides(name, settings, sizes))

    found = [
        row(name, settings.get('surrogate', 'retrieval'), settings) for name, settings in LOSSES
    ]
    return found + [row('PMLLoss', name, dict(loss=dict(type=name))) for name in PML_LOSSES]


def make_batch(sizes: Sizes) -> tuple:
    """A leaf of unit embeddings, and a batch of it and of a memory."""
    g = torch.Generator().manual_seed(0)
    queries = sizes.queries
    gallery = max(sizes.queries, sizes.gallery)
    classes = max(queries // sizes.class_size, 1)
    labels = torch.arange(gallery) % classes
    x = torch.randn(gallery, sizes.dimensions, generator=g)
    x += torch.randn(classes, sizes.dimensions, generator=g)[labels]
    x = normalize(x).to(sizes.device)
    labels = labels.to(sizes.device)
    itself = torch.eye(queries, gallery, device=sizes.device) > 0
    leaf = x[:queries].clone().requires_grad_()
    memory = x[queries:]

    def make() -> EmbeddingBatch:
        leaf.grad = None
        rows = torch.cat([leaf, memory]) if len(memory) else leaf
        return EmbeddingBatch(leaf, labels[:queries], rows, labels, itself)

    return leaf, make


def _sides(name: str, settings: dict, sizes: Sizes) -> Sides:
    leaf, make = make_batch(sizes)
    loss = MODELS.build(dict(type=f'mmrank.{name}', **settings))
    loss = loss.to(sizes.device)
    return Sides(
        lambda: make().scores().sum().backward(),
        lambda: loss.embedding_loss(make()).backward(),
        _peers(name, settings, leaf, make().query_labels, sizes),
    )


def _peers(name: str, settings: dict, leaf, labels, sizes: Sizes) -> dict:
    """The same loss of pytorch-metric-learning, which takes no memory."""
    theirs = settings['loss']['type'] if name == 'PMLLoss' else name
    same = sizes.queries == sizes.gallery
    if theirs == 'SmoothAPLoss':
        # It takes classes of one size, and memory of the cube of the batch.
        same = same and sizes.queries % sizes.class_size == 0
        same = same and sizes.queries <= 256
    elif name != 'PMLLoss':
        same = False
    if not same or not importlib.util.find_spec('pytorch_metric_learning'):
        return {}
    from pytorch_metric_learning import losses

    loss = getattr(losses, theirs)()
    # And in their order.
    order = labels.argsort(stable=True)

    def step() -> None:
        leaf.grad = None
        loss(leaf[order], labels[order]).backward()

    return {'pytorch-metric-learning': step}
