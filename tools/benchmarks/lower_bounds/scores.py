"""Losses of a table of scores compared with reading and writing the scores."""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from mmrank import losses
from mmrank.losses.registered import build_loss

from .row import Row, Sides, Sizes, backward_step

FLOOR = 'read, read and write the scores once'
#: Settings of the losses of one list or one per class.
LOSSES = (
    ('StableAPLoss', dict(quality=0)),
    ('StableAPLoss', dict(quality=0, mode='per_class')),
    ('APLoss', dict(quality=0)),
    ('GradedAPLoss', {}),
    ('ALRPLoss', {}),
    ('RankSortLoss', {}),
    ('DRLoss', {}),
    ('SOPRCLoss', {}),
    ('SmoothAPLoss', dict(quality=0)),
    ('AUCLoss', {}),
    ('AUCLoss', dict(surrogate='one_sided_huber', tau=0.5)),
    ('PartialAUCLoss', {}),
    ('AUCMLoss', {}),
    ('ListNetLoss', {}),
    ('ListwiseAPLoss', {}),
    ('BlackBoxAPLoss', {}),
    ('SumLoss', {}),
    ('SOAPLoss', {}),
    *((name, {}) for name in ('VarifocalLoss', 'MALLoss', 'IABCELoss', 'QualityFocalLoss')),
)
#: Of which every pair of a positive and a negative is computed.
OF_PAIRS = ('SmoothAPLoss', 'AUCLoss', 'SumLoss')
#: Losses of rows that all have a class.
CLASSIFIERS = (
    ('MAUCLoss', {}),
    ('ClassBalancedCELoss', {}),
    ('ClassBalancedCELoss', dict(use_sigmoid=False)),
    ('LDAMLoss', {}),
    ('LDAMLoss', dict(use_sigmoid=False)),
    ('LogitAdjustedCELoss', {}),
    ('BalancedSoftmaxLoss', {}),
    ('AsymmetricLoss', {}),
)
PARTS = [dict(type='mmrank.StableAPLoss'), dict(type='mmrank.AUCLoss')]


def score_rows(sizes: Sizes) -> list[Row]:
    found = [_row(name, settings, sizes.positives, sizes) for name, settings in LOSSES]
    found += [_row(name, settings, sizes.rows, sizes) for name, settings in CLASSIFIERS]
    lists = 16
    length = sizes.listed
    work = f'{lists} lists of {length} scores'
    floor = 'its sorter alone'
    return [*found, Row('SoDeepLoss', '', work, floor, lambda: _sodeep(length, lists))]


def _row(name: str, settings: dict, positives: int, sizes: Sizes) -> Row:
    if name in OF_PAIRS and 'surrogate' not in settings:
        # A hundredth of the pairs.
        sizes = replace(sizes, rows=max(sizes.rows // 10, 10))
        positives = max(positives // 10, 1)
    return Row(
        name,
        ', '.join(f'{k}={v}' for k, v in settings.items()),
        f'{sizes.rows} x {sizes.classes} scores, {positives} positives',
        FLOOR,
        lambda: _sides(name, settings, positives, sizes),
    )


def make_batch(rows: int, classes: int, positives: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    target = torch.full((rows,), classes)
    chosen = torch.randperm(rows, generator=g)[:positives]
    target[chosen] = torch.randint(classes, (positives,), generator=g)
    return torch.randn(rows, classes, generator=g), target


def _sides(name: str, settings: dict, positives: int, sizes: Sizes) -> Sides:
    scores, target = make_batch(sizes.rows, sizes.classes, positives)
    # Settings without which the loss cannot be built.
    required = {}
    if name == 'SumLoss':
        required = dict(losses=PARTS, weights=[1.0, 0.5])
    elif name == 'SOAPLoss':
        required = dict(num_samples=sizes.rows)
    elif issubclass(getattr(losses, name), losses.ClassCountLoss):
        counts = torch.bincount(target, minlength=sizes.classes)
        required = dict(class_counts=counts.tolist())
    config = dict(type=f'mmrank.{name}', **settings, **required)
    loss = build_loss('loss', config, sizes.classes).to(sizes.device)
    scores = scores.to(sizes.device).requires_grad_()
    target = target.to(sizes.device)
    # What it requires of the boxes, and of the samples.
    argument = {'quality': 'quality', 'loss': 'box_loss'}.get(getattr(loss, 'box_input', None))
    given = {argument: torch.rand(positives, device=sizes.device)} if argument else {}
    if getattr(loss, 'keeps_samples', False):
        given['sample_idx'] = torch.arange(len(scores))

    def ours() -> Tensor:
        value = loss(scores, target, None, **given)
        return sum(value.values()) if isinstance(value, dict) else value

    read = torch.randn_like(scores), torch.randn_like(scores)
    out = torch.empty_like(scores)
    label = one_hot(target, sizes.classes + 1)[:, :-1].to(scores)

    def entropy() -> Tensor:
        if settings.get('use_sigmoid', True):
            return binary_cross_entropy_with_logits(scores, label)
        return cross_entropy(scores, target)

    return Sides(
        lambda: torch.add(*read, out=out),
        backward_step(ours, [scores]),
        {'cross-entropy': backward_step(entropy, [scores])},
    )


def _sodeep(length: int, lists: int) -> Sides:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'sorter.pth'
        losses.RankSorter(length).save(path, 0.0)
        config = dict(type='mmrank.SoDeepLoss', sorter=str(path), mode='per_class')
        loss = build_loss('loss', config, lists)
    scores = torch.randn(length, lists, requires_grad=True)
    target = torch.arange(length) % (2 * lists)
    target = target.clamp(max=lists)
    alone = torch.randn(lists, length, requires_grad=True)
    return Sides(
        backward_step(lambda: loss.sorter(alone).sum(), [alone]),
        backward_step(lambda: loss(scores, target), [scores]),
    )
