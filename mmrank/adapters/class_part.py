"""What the class loss of a detector is computed from, how it comes and goes, and is refused."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast, overload

import torch
from torch import Tensor, nn

from mmrank.errors import UserError, UserTypeError
from mmrank.losses import HeadLoss
from mmrank.losses.base import Losses
from mmrank.losses.pointwise.quality_losses import QualityLoss
from mmrank.made_class import MadeClass

_Part = TypeVar('_Part', bound='MadePart')
# Boxes in fractions may end a little beyond their image; those in pixels go on.
_LARGEST_FRACTION = 2.0
#: YOLO has boxes count 15 times as much as a class loss that sums over all points; a ranking is at
#: most 1. By this factor it is as large as their cross-entropy in the middle of a training.
_CLASS_SCALE = 8.0


@dataclass(frozen=True)
class RankingSettings:
    """What an adapter puts into a model; see :func:`mmrank.adapters.use_ranking_loss`."""

    loss: HeadLoss
    centre_scores: bool
    balance_boxes: bool


@dataclass(frozen=True)
class ClassPart:
    """Class scores of a batch, and what the detector assigned to them.

    Where a criterion has these, mmrank computes its class loss and leaves the rest, such as the
    assignment and the box losses, to it. All adapters of detectors use it, and so can yours::

        loss_cls = ClassPart(logits, labels, quality).loss(self.ranking)

    Args:
        logits: (B, n, C) or (n, C) raw scores of anchors, points or queries.
        labels: (B, n) or (n,) their classes as the detector assigns them; C where there is none.
        quality: IoU or alignment in [0, 1]: of all rows, in the shape of the labels, or (n_pos,)
            of those with a class. None if the loss needs none.
        counts: Whether a row counts, in the shape of the labels. None: all do.
    """

    logits: Tensor
    labels: Tensor
    quality: Tensor | None = None
    counts: Tensor | None = None

    @classmethod
    def of_targets(cls, logits: Tensor, targets: Tensor) -> 'ClassPart':
        """From the (B, n, C) targets of a binary cross-entropy, as the assigners of YOLO make them.

        A row's highest target is its class and quality; a row of zeros has none.
        """
        if targets.shape != logits.shape:
            what = f'targets must have the shape of the logits, {tuple(logits.shape)}, got '
            raise UserError(f'{what}{tuple(targets.shape)}', 'of classes ClassPart(logits, labels)')
        quality, labels = targets.detach().max(-1)
        return cls(logits, torch.where(quality <= 0, logits.size(-1), labels), quality)

    @overload
    def loss(self, ranking: HeadLoss) -> Tensor: ...

    @overload
    def loss(self, ranking: HeadLoss, **values: Tensor) -> Losses: ...

    def loss(self, ranking: HeadLoss, **values: Tensor) -> Losses:
        """The loss by ``ranking``, which may take the quality; a dict with a loss of the boxes."""
        check_is_loss(ranking)
        if self.labels.shape != self.logits.shape[:-1]:
            what = f'labels must be {tuple(self.logits.shape[:-1])}, a class for each row of the '
            what += f'logits, got {tuple(self.labels.shape)}'
            raise UserError(what, 'of soft targets ClassPart.of_targets(logits, targets)')
        if ranking.box_input == 'quality' and self.quality is not None:
            values['quality'] = self.quality.flatten()
        labels = self.labels.flatten()
        counts = None if self.counts is None else self.counts.flatten().float()
        # The factor says that C is the background, also of one class.
        return ranking(self.logits.flatten(0, -2), labels, counts, avg_factor=len(labels), **values)


def loss_of_targets(ranking: HeadLoss, logits: Tensor, targets: Tensor) -> Tensor:
    """Loss of a head of YOLO, on the scale of its cross-entropy divided by the sum of targets."""
    loss = ClassPart.of_targets(logits, targets).loss(ranking)
    return loss if isinstance(ranking, QualityLoss) else _CLASS_SCALE * loss


def check_is_loss(loss: object) -> None:
    """Raise UserTypeError for what is not a loss that a detector can train on."""
    if isinstance(loss, HeadLoss):
        return
    shown = f'the class {loss.__name__}' if isinstance(loss, type) else type(loss).__name__
    what = f'loss={shown} is neither a ranking loss of mmrank nor a point-wise one'
    raise UserTypeError(what, 'pass for example mmrank.losses.GradedAPLoss() or VarifocalLoss()')


class RankingPart(nn.Module):
    """A module of a detector that has ``rankings``, its losses by name, and is saved with them."""

    rankings: Mapping[str, HeadLoss]  # a ModuleDict

    def leave(self, model) -> None:
        """Make ``model`` what it was without this."""
        raise NotImplementedError


class MadePart(MadeClass, RankingPart):
    """Mixin for a part of a detector. Its class changes: a wrapper would change the saved keys."""

    shows_centre = True  # By the layers that score the classes
    added: tuple[str, ...]

    def leave(self, model) -> None:
        keep_centred(self)
        for name in self.added:
            delattr(self, name)
        self.__class__ = self.host


def make_part(part, mixin: type[_Part], **added) -> _Part:
    """Give a part of a detector a mixin and further attributes, until it leaves."""
    part.__class__ = mixin.class_for(type(part))
    part.added = ('added', *added)
    for name, value in added.items():
        setattr(part, name, value)
    return part


def put_rankings(
    part,
    mixin: type[_Part],
    layers: Mapping[str, Sequence[nn.Module]],
    settings: RankingSettings,
    losses: nn.ModuleDict | None = None,
    **added,
) -> _Part:
    """:func:`make_part` with the losses, on the device of the ``layers`` that score the classes.

    In eval mode these show the mean positive of their loss at 0. ``losses`` None: a copy for each
    name of the layers.
    """
    if losses is None:
        losses = copies_of(settings.loss, layers)
    device = next(next(iter(layers.values()))[0].parameters()).device
    losses.to(device).train(part.training)
    made = make_part(part, mixin, rankings=losses, **added)
    if settings.centre_scores and mixin.shows_centre:
        for name in layers:
            for layer in layers[name]:
                show_centred(layer, made.rankings[name])
    return made


def ranking_parts(model, expected: bool = True) -> list[RankingPart]:
    """The parts of a model that have rankings; ``UserError`` if it has and should not, or not."""
    # What is not a module may hold one, as a trainer does.
    holds = [model] if isinstance(model, nn.Module) else getattr(model, '__dict__', {}).values()
    roots = [x for x in holds if isinstance(x, nn.Module)]
    parts = [x for root in roots for x in root.modules() if isinstance(x, RankingPart)]
    if bool(parts) == expected:
        return parts
    what = 'has no ranking loss. Fix: the model that use_ranking_loss(model, loss) returned'
    if parts:
        what = 'has a ranking loss already. Fix: call remove_ranking_loss(model) first'
    raise UserError(f'{type(model).__name__} {what}')


def copies_of(
    loss: HeadLoss, names: Collection[str], proposals: Mapping[str, HeadLoss] = {}
) -> nn.ModuleDict:
    """A copy of the loss for each ranking, with its own state.

    The scores of a decoder layer have another level and spread than the scores of the next. The
    encoder's ``proposals`` keep their own point-wise loss: a ranking of them costs half of the mAP
    (docs/pages/results/detr.md). Another point-wise loss, to compare with, takes them over too.
    """
    own = {} if isinstance(loss, QualityLoss) else proposals
    names = [*names, *(name for name in proposals if name not in names)]
    return nn.ModuleDict({name: own.get(name) or copy.deepcopy(loss) for name in names})


def show_centred(layer: nn.Module, ranking: HeadLoss) -> None:
    """In eval mode, let a layer that scores classes show the mean positive of a loss at 0."""
    layer.register_forward_hook(partial(_subtract_centre, ranking))


def keep_centred(part: nn.Module) -> None:
    """Undo :func:`show_centred`; the centre moves into the bias of the layers."""
    for layer, key, ranking in centred_layers(part):
        with torch.no_grad():
            layer.bias -= centre_of_channels(ranking, layer.bias)
        del layer._forward_hooks[key]


def centred_layers(part: nn.Module) -> list[tuple[Any, int, HeadLoss]]:
    """The layers that :func:`show_centred` was called for, the keys of their hooks, the losses."""
    found = []
    for layer in part.modules():
        for key, hook in layer._forward_hooks.items():
            if isinstance(hook, partial) and hook.func is _subtract_centre:
                found.append((layer, key, hook.args[0]))
    return found


def _subtract_centre(ranking: HeadLoss, layer: nn.Module, args: tuple, scores: Tensor) -> Tensor:
    if layer.training:
        return scores
    centre = centre_of_channels(ranking, cast(Tensor, layer.bias)).to(scores)
    return scores - (centre.view(-1, 1, 1) if isinstance(layer, nn.Conv2d) else centre)


def centre_of_channels(ranking: HeadLoss, bias: Tensor) -> Tensor:
    """Of several anchors, the class runs fastest."""
    centre = centre_of(ranking, bias.detach())
    return centre.repeat(bias.numel() // centre.numel())


def centre_of(loss: HeadLoss, scores: Tensor) -> Tensor:
    """Raw score that is shown as 0.5, (1,) or (C,), 0 where there is none."""
    centre = loss.logit_centre()
    return scores.new_zeros(1) if centre is None else centre.to(scores)


def aligned_iou(first: Tensor, second: Tensor) -> Tensor:
    """(n,) IoU in [0, 1] of (n, 4) boxes, corner and corner, at least float32."""
    dtype = torch.promote_types(torch.promote_types(first.dtype, second.dtype), torch.float32)
    first = first.to(dtype)
    second = second.to(dtype)
    low = torch.maximum(first[:, :2], second[:, :2])
    high = torch.minimum(first[:, 2:], second[:, 2:])
    inter = (high - low).clamp(min=0).prod(1)
    union = sum((x[:, 2:] - x[:, :2]).prod(1) for x in (first, second)) - inter
    return (inter / union.clamp(min=torch.finfo(dtype).tiny)).clamp(0, 1)


def check_objects(
    labels: Sequence[Tensor], boxes: Sequence[Tensor], num_classes: int, option: str
) -> None:
    """Check labels that count from 0, and boxes in fractions; ``option`` sets the classes."""
    fix = f'number the classes from 0, not by category id of COCO, or a larger {option}'
    check_labels(labels, 0, num_classes - 1, fix)
    found = _ends(boxes)
    if found is not None and found[1] > _LARGEST_FRACTION:
        raise UserError(
            f'the boxes of a batch reach to {found[1]:.4g}, and this model takes (centre x, centre '
            'y, width, height) in fractions of the image, up to 1. Fix: divide x and width by the '
            'width of the image, y and height by its height'
        )


def check_labels(labels: Sequence[Tensor], least: int, most: int, fix: str) -> None:
    """Refuse, by a UserError, class labels of images outside of ``[least, most]``.

    A compiled step does not look.
    """
    found = _ends(labels)
    if found is not None and (found[0] < least or found[1] > most):
        raise UserError(
            f'the labels of a batch are {found[0]:.0f} to {found[1]:.0f}, but the classes of this '
            f'model have {least} to {most}. Fix: {fix}'
        )


def _ends(values: Sequence[Tensor]) -> tuple[float, float] | None:
    parts = [] if torch.compiler.is_compiling() else [x.flatten() for x in values if x.numel()]
    if not parts:
        return None
    # One wait for the device.
    least, most = torch.stack(torch.aminmax(torch.cat(parts))).tolist()
    return least, most
