"""Moves the centre of the scores into the bias of the classification layer.

Heads of mmrank subtract :meth:`RankingLoss.logit_centre` at test time; the stock heads of mmdet do
not know it. A constant per class is the same thing as a smaller bias of the layer that gives the
scores, which both apply.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from mmrank.losses import RankingLoss
from mmrank.losses.protocols import ShiftsLogits

from .dense_heads.adapted_hosts import JointMapPredictions, JointPredictions, SigmoidSSD
from .dense_heads.listwise_detr_mixin import ListwiseDETRMixin
from .dense_heads.listwise_mixin import ListwiseMixin
from .score_centre import score_centre

#: Side of the feature maps on which a head is tried.
_SIDE = 8
#: A centre that is left when the state of a loss is moved, by rounding.
_ZERO = 1e-5


@dataclass(frozen=True)
class HeadCentre:
    """Whether the score centre of one head was folded into its bias."""

    #: Name of the head in the model, such as ``bbox_head``.
    head: str
    #: Subtracted from the raw scores, one number or one per class; empty without a centre.
    centre: tuple[float, ...]
    #: Why it is not in the bias; empty if it is.
    reason: str = ''

    @property
    def folded(self) -> bool:
        """Whether the centre is in the bias now."""
        return bool(self.centre) and not self.reason


def fold_centres(model: nn.Module, box_heads: bool = False) -> list[HeadCentre]:
    """Move the centre of each head's scores into its classification layer.

    The bias falls by the centre and the state of the loss moves along, so that its centre is 0
    afterwards: the model shows the same scores, and so does a stock head with the same weights.
    Whether the scores of a head move as they should is tried on random features first.

    A model without such a head is left as it is, and so are a head with ``centre_scores=False``,
    which shows what a stock head shows, and one that was folded before.

    Args:
        model: A detector or a head with its weights, changed in place.
        box_heads: Also fold the centres of box heads of a second stage. Only a stock head with one
            sigmoid per class shows the same then (``mmdet.CrossEntropyCustomLoss`` with
            ``use_sigmoid=True``).

    Returns:
        One entry for each head with a ranking loss, whether its centre could be moved and why not.
    """
    found, stages = [], {}
    for name, head in model.named_modules():
        if isinstance(head, ListwiseMixin):
            if head.centre_scores:
                lower = partial(_lower_tried_bias, head)
                found.append(_fold(name, head.loss_cls.loss, lower))
        elif isinstance(head, ListwiseDETRMixin):
            if head.centre_scores:
                found.append(_fold_query_head(name, head))
        elif isinstance(getattr(head, 'loss_cls', None), RankingLoss) and (hasattr(head, 'fc_cls')):
            if box_heads:
                stage = re.fullmatch(r'(.+)\.\d+', name)
                heads = stages.setdefault(stage[1] if stage else name, {})
                heads[name] = head
                continue
            found.append(
                HeadCentre(
                    name,
                    _numbers(head.loss_cls.logit_centre()),
                    'the stock box head has a softmax over C + 1 channels, which no bias turns '
                    'into the C sigmoids of a ranking loss. tools/model_converters/to_stock.py '
                    'writes a stock config with C sigmoids',
                )
            )
    for heads in stages.values():
        found += _fold_box_heads(model, heads)
    return found


def _fold_box_heads(model: nn.Module, heads: dict[str, nn.Module]) -> list[HeadCentre]:
    """Fold the centres of a box head, or of the stages of a cascade."""
    found = []
    reason = _other_predictions(model, heads)
    for name, head in heads.items():

        def lower(centre: Tensor, layer: nn.Module = head.fc_cls) -> str:
            if not reason:
                with torch.no_grad():
                    layer.bias -= centre.to(layer.bias)
            return reason

        found.append(_fold(name, head.loss_cls, lower))
    if len(heads) > 1 and not reason:
        # What a cascade shows is the mean of the raw scores of its stages, less the centre of the
        # last one.
        centres = [torch.tensor(one.centre if one.folded else (0.0,)) for one in found]
        last = (len(centres) - 1) * centres[-1] - sum(centres[:-1])
        with torch.no_grad():
            head.fc_cls.bias -= last.to(head.fc_cls.bias)
    return found


def _other_predictions(model: nn.Module, heads: dict[str, nn.Module]) -> str:
    """Why box heads do not show scores as those of mmdet; empty if so."""
    from mmdet.models.roi_heads import CascadeRoIHead
    from mmdet.models.roi_heads.bbox_heads import BBoxHead

    def differs(module: nn.Module, base: type, *methods: str) -> bool:
        return any(getattr(type(module), name, None) is not getattr(base, name) for name in methods)

    for name, head in heads.items():
        layer, kind = head.fc_cls, type(head).__name__
        if differs(head, BBoxHead, '_predict_by_feat_single'):
            return f'{kind} predicts boxes in a way of its own'
        if not isinstance(layer, nn.Linear) or layer.bias is None:
            return f'fc_cls of {kind} is no linear layer with a bias'
        if name.rpartition('.')[2].isdigit():
            holder = model.get_submodule('.'.join(name.split('.')[:-2]))
            if differs(holder, CascadeRoIHead, 'predict_bbox', '_refine_roi'):
                return (
                    f'{type(holder).__name__} puts the scores of its stages '
                    'together in a way of its own'
                )
    return ''


def _fold_query_head(name: str, head: ListwiseDETRMixin) -> HeadCentre:
    """Fold the centre of the last decoder layer, which is the one shown."""
    rankings = head.loss_cls
    number = len(rankings.layers)
    branches = getattr(head, 'cls_branches', None) or [head.fc_cls] * number
    layer = branches[number - 1]
    # Other rankings of the same layer, whose scores move along.
    collectors = [
        *zip(branches, rankings.layers),
        *zip(branches, rankings.denoising),
        *zip(branches[number:], filter(None, [rankings.encoder])),
    ]
    shown = rankings.layers[-1]
    others = [c.loss for b, c in collectors if b is layer and c is not shown]

    def lower(centre: Tensor) -> str:
        with torch.no_grad():
            layer.bias -= centre.to(layer.bias)
        return ''

    return _fold(name, shown.loss, lower, others)


def _fold(
    name: str, loss: nn.Module, lower: Callable[[Tensor], str], others: Sequence[nn.Module] = ()
) -> HeadCentre:
    """Fold the centre of one loss.

    Args:
        name: Name of the head.
        loss: The loss that has the centre.
        lower: Subtracts a centre from the bias; returns why it cannot.
        others: Losses whose scores the same bias moves.
    """
    user = type(loss).__name__
    centre = score_centre(loss)
    if centre is None:
        return HeadCentre(
            name,
            (),
            f'{user} has no logit_centre(), so the scores are wherever '
            'training left them; a stock config needs its own score_thr',
        )
    centre = centre.detach().clone()
    numbers = _numbers(centre)
    if centre.abs().max() <= _ZERO:
        return HeadCentre(name, numbers)
    if not isinstance(loss, ShiftsLogits):
        return HeadCentre(
            name,
            numbers,
            f'{user} has logit_centre() but no shift_logits(), so the centre would be applied '
            'twice. Fix: add the method, see mmrank/losses/protocols.py',
        )
    reason = lower(centre)
    if reason:
        return HeadCentre(name, numbers, reason)
    state = {key: x.clone() for key, x in loss.state_dict().items()}
    loss.shift_logits(-centre)
    left = loss.logit_centre().abs().max()
    if left > _ZERO:
        loss.load_state_dict(state)
        lower(-centre)
        return HeadCentre(
            name,
            numbers,
            f'{user}.shift_logits() leaves a centre of {left:.3g} instead of '
            '0. Fix: let it add the offset to what logit_centre() returns',
        )
    for other in others:
        other.shift_logits(-centre)
    return HeadCentre(name, numbers)


def _lower_tried_bias(head: ListwiseMixin, centre: Tensor) -> str:
    return _impossible(head) or _lower_bias(head, centre)


def _impossible(head: ListwiseMixin) -> str:
    if isinstance(head, (JointPredictions, JointMapPredictions)):
        return (
            f'{head.host.__name__} shows the product of class and '
            'objectness, and the centre is that of the product'
        )
    if isinstance(head, SigmoidSSD):
        return (
            'the stock SSD head has a softmax over C + 1 channels, which no '
            'bias turns into the C sigmoids of a ranking loss'
        )
    if head.traits.probabilities:
        return (
            f'the scores of {head.host.__name__} are products of '
            'probabilities, not the output of one layer'
        )
    return ''


def _lower_bias(head: ListwiseMixin, centre: Tensor) -> str:
    """Subtract the centre from the bias; return why that is impossible."""
    modes = {module: module.training for module in head.modules()}
    head.eval()
    # A guided anchor head masks its features in evaluation, on a GPU only.
    head.training = True
    changed = []
    try:
        features = _features(head)
        biases = list(_last_biases(head, features))
        with torch.no_grad():
            before = head(features)[0]
            for bias in biases:
                changed.append((bias, bias.clone()))
                bias -= centre.to(bias).repeat(bias.numel() // centre.numel())
            after = head(features)[0]
        if biases and all(
            torch.allclose(new, head._subtract(old, centre), atol=1e-4)
            for old, new in zip(before, after)
        ):
            return ''
        reason = 'are not the plain output of a layer with a bias'
    # A head of another package may take other features.
    except Exception as error:
        reason = f'cannot be computed from random features: {type(error).__name__}: {error}'
    finally:
        for module, mode in modes.items():
            module.training = mode
    with torch.no_grad():
        for bias, value in changed:
            bias.copy_(value)
    return f'the raw scores of {head.host.__name__} {reason}'


def _features(head: ListwiseMixin) -> tuple[Tensor, ...]:
    generator = getattr(head, 'prior_generator', None)
    if generator is None:
        generator = head.square_anchor_generator
    weight = next(head.parameters())
    random = torch.Generator().manual_seed(0)
    shape = (1, head.in_channels, _SIDE, _SIDE)
    return tuple(
        torch.randn(shape, generator=random).to(weight) for _ in range(generator.num_levels)
    )


def _last_biases(head: ListwiseMixin, features: tuple[Tensor, ...]) -> Iterator[nn.Parameter]:
    """Biases by which each raw score grows as the bias itself does."""
    scores = head(features)[0]
    channels = scores[0].size(1)
    candidates = [
        parameter
        for name, parameter in head.named_parameters()
        if name.endswith('bias') and parameter.numel() == channels
    ]
    if not candidates:
        return
    with torch.enable_grad():
        total = sum(level.sum() for level in scores)
        slopes = torch.autograd.grad(total, candidates, allow_unused=True)
    places = scores[0][0, 0].numel()
    for bias, slope in zip(candidates, slopes):
        if slope is None:
            continue
        # A layer may serve some of the levels only.
        levels = slope / places
        if (levels == levels[0].round()).all() and levels[0] > 0:
            yield bias


def _numbers(centre: Tensor | None) -> tuple[float, ...]:
    return () if centre is None else tuple(centre.flatten().tolist())
