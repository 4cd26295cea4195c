"""Losses of two views and of two towers compared with their bare products."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, softplus

from mmrank.registry import MODELS

from .row import Row, Sides, Sizes, Step, backward_step, installed, products

#: A temperature, for time alone.
TAU = 0.05


def view_rows(sizes: Sizes) -> list[Row]:
    b = sizes.batch
    d = sizes.width
    rows = []
    for label, config in losses(sizes.samples, d).items():
        words, shapes = _floor(config, b, d)
        prepare = partial(_view_sides, config, shapes, sizes)
        name = config['type'].removeprefix('mmrank.')
        rows.append(Row(name, label, f'{b} samples, {d}-d', words, prepare))
    return rows


def losses(samples: int, width: int) -> dict[str, dict]:
    """Configs by name; those with state for so many samples of embeddings of that length."""
    state = dict(num_samples=samples)
    return {
        'InfoNCE': dict(type='mmrank.InfoNCELoss', tau=0.5),
        'TaU + SimCLR': dict(type='mmrank.TaUSimCLRLoss'),
        'SogCLR': dict(type='mmrank.SogCLRLoss', **state),
        'iSogCLR': dict(type='mmrank.ISogCLRLoss', **state),
        'iSogCLR, images and texts': dict(type='mmrank.BimodalISogCLRLoss', **state),
        'CLIP': dict(type='mmrank.CLIPLoss'),
        'SigLIP': dict(type='mmrank.SigLIPLoss'),
        'CyCLIP': dict(type='mmrank.CyCLIPLoss'),
        'CLIP, individual': dict(type='mmrank.IndividualCLIPLoss', **state),
        'SogCLR, images and texts': dict(type='mmrank.SogCLRLoss', bimodal=True, **state),
        'FastCLIP-v3': dict(type='mmrank.SogCLRLoss', bimodal=True, rho=6.5, **state),
        'TempNet': dict(type='mmrank.TempNetLoss', width=width, **state),
        'NUCLR': dict(type='mmrank.NUCLRLoss', **state),
        'FlatCLR': dict(type='mmrank.FlatCLRLoss'),
        'SimCo': dict(type='mmrank.SimCoLoss'),
        'spectral': dict(type='mmrank.SpectralContrastiveLoss'),
        'VICReg': dict(type='mmrank.VICRegLoss'),
        'Barlow Twins': dict(type='mmrank.BarlowTwinsLoss'),
    }


def make_views(sizes: Sizes) -> list[Tensor]:
    """Two leaves of embeddings."""
    g = torch.Generator().manual_seed(0)
    return [
        torch.randn(sizes.batch, sizes.width, generator=g).to(sizes.device).requires_grad_()
        for _ in range(2)
    ]


def _view_sides(config: dict, shapes: list, sizes: Sizes) -> Sides:
    """Forward and backward of a loss; other samples at every call, each once as a sampler draws."""
    loss = MODELS.build(config).to(sizes.device)
    g = torch.Generator().manual_seed(0)
    views = make_views(sizes)

    def value() -> Tensor:
        first = torch.randint(sizes.samples, (1,), generator=g)
        # Steps of a prime: all over the table, and none twice.
        return loss(*views, (first + 7919 * torch.arange(sizes.batch)) % sizes.samples)

    ours = backward_step(value, views)
    return Sides(products(shapes, sizes.device), ours, _view_peers(config, sizes))


def _floor(config: dict, b: int, d: int) -> tuple[str, list]:
    """The products, once forward and what goes back, in words and shapes."""
    name = config['type'].removeprefix('mmrank.')
    if name == 'BarlowTwinsLoss':
        return '3 products of views', [(d, b, d), (b, d, d), (b, d, d)]
    if name == 'VICRegLoss':
        return '4 products of views', [(d, b, d)] * 2 + [(b, d, d)] * 2
    if name == 'SpectralContrastiveLoss':
        return '3 products B x D x B', [(b, d, b), (b, b, d), (b, b, d)]
    if name == 'NUCLRLoss':
        return '5 products B x D x B', [(b, d, b)] * 3 + [(b, b, d)] * 2
    bimodal = name in ('BimodalISogCLRLoss', 'TempNetLoss', 'SimCoLoss')
    if bimodal or 'CLIP' in name or config.get('bimodal'):
        return '4 products B x D x B', [(b, d, b)] * 2 + [(b, b, d)] * 2
    b = 2 * b
    return '2 products 2B x D x 2B', [(b, d, b), (b, b, d)]


def _view_peers(config: dict, sizes: Sizes) -> dict[str, Step]:
    name = config['type'].removeprefix('mmrank.')
    views = make_views(sizes)
    ids = torch.arange(sizes.batch, device=sizes.device)

    def two_softmaxes() -> Tensor:
        left, right = map(normalize, views)
        scores = left @ right.t() / TAU
        return cross_entropy(scores, ids) + cross_entropy(scores.t(), ids)

    if name == 'CLIPLoss':
        return {'PyTorch, two softmaxes': backward_step(two_softmaxes, views)}
    if not installed('pytorch_metric_learning'):
        return {}
    from pytorch_metric_learning import losses as theirs

    # Of two views their InfoNCE, which NTXentLoss computes in memory of the cube of the batch.
    entropy = theirs.SupConLoss(config.get('tau', TAU))
    regular = theirs.VICRegLoss()
    peers = {
        'InfoNCELoss': lambda: entropy(torch.cat(views), ids.repeat(2)),
        'VICRegLoss': lambda: regular(views[0], ref_emb=views[1]),
    }
    return {'pytorch-metric-learning': backward_step(peers[name], views)} if name in peers else {}


def pair_rows(sizes: Sizes) -> list[Row]:
    n = sizes.pairs
    c = sizes.channels
    scores = '3 products of the scores', [(n, c, n), (n, n, c), (n, n, c)]
    grams = '4 products of the rows', [(c, n, c)] * 2 + [(n, c, c)] * 2
    work = f'{n} pairs, {c}-d'
    return [
        Row(name, pointwise, work, words, partial(_pairs, name, pointwise, shapes, sizes))
        for name, pointwise, (words, shapes) in (
            ('InBatchLoss', 'square', grams),
            ('InBatchLoss', 'logistic', scores),
            ('InBatchSoftmaxLoss', 'refined', scores),
        )
    ]


def _pairs(name: str, pointwise: str, shapes, sizes: Sizes) -> Sides:
    settings = dict(pointwise=pointwise)
    if name == 'InBatchSoftmaxLoss':
        settings = dict(refined=True)
    config = dict(type=f'mmrank.{name}', **settings)
    module = MODELS.build(config).to(sizes.device)
    g = torch.Generator().manual_seed(0)
    size = sizes.pairs, sizes.channels
    left, right = leaves = [
        torch.randn(size, generator=g).to(sizes.device).requires_grad_() for _ in range(2)
    ]
    order = torch.arange(sizes.pairs, device=sizes.device)
    module.set_pairs(order, order, (sizes.pairs,) * 2)

    def plain():
        return cross_entropy(left @ right.t(), order)

    def logistic():
        # Each positive pair counts as a negative, too.
        scores = left @ right.t()
        own = softplus(-scores.diagonal()).mean()
        return own + softplus(scores).mean()

    peers = {'PyTorch, softmax': plain}
    if pointwise == 'logistic':
        peers['PyTorch, logistic'] = logistic
    if name == 'InBatchLoss':
        biased = MODELS.build(dict(config, mode='in_batch')).to(sizes.device)
        biased.set_pairs(order, order, (sizes.pairs,) * 2)
        peers['the same, in-batch'] = lambda: biased(left, right, order, order)
    return Sides(
        products(shapes, sizes.device),
        backward_step(lambda: module(left, right, order, order), leaves),
        {key: backward_step(loss, leaves) for key, loss in peers.items()},
    )
