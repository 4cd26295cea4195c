"""Moves the centre of the scores into the bias of the classification layer.

Heads of mmrank subtract :meth:`RankingLoss.logit_centre` at test time; the stock heads of mmdet do
not know it. A constant per class is the same thing as a smaller bias of the layer that gives the
scores, which both apply.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from mmrank.losses import HeadLoss
from mmrank.models.dense_heads.adapted_hosts import JointPredictions
from mmrank.models.dense_heads.listwise_detr_mixin import ListwiseDETRMixin
from mmrank.models.dense_heads.listwise_mixin import ListwiseMixin
from mmrank.models.score_centre import score_centre

#: Side of the feature maps on which a head is tried.
_SIDE = 8


@dataclass(frozen=True)
class HeadCentre:
    """Whether the score centre of one head was folded into its bias."""

    head: str  # Name of the head in the model, such as ``bbox_head``
    #: Subtracted from the raw scores, one number or one per class; empty without a centre.
    centre: tuple[float, ...]
    reason: str = ''  # Why it is not in the bias; empty if it is

    @property
    def folded(self) -> bool:
        """Whether the centre is in the bias now."""
        return bool(self.centre) and not self.reason


def fold_centres(model: nn.Module) -> list[HeadCentre]:
    """Move the centre of each head's scores into its classification layer, in place.

    The bias falls by the centre, so a stock head with these weights shows the scores of the model;
    the model itself would subtract the centre once more. Whether the scores of a dense head move as
    they should is tried on random features first. A head with ``centre_scores=False`` shows what a
    stock head shows, and is left as it is.

    Returns one entry for each head with a ranking loss: whether its centre moved, and why not.
    """
    found = []
    stages: dict[str, dict[str, nn.Module]] = {}
    for name, head in model.named_modules():
        if isinstance(head, ListwiseMixin):
            if head.centre_scores:
                found.append(_fold(name, head.loss_cls.loss, partial(_lower_tried_bias, head)))
        elif isinstance(head, ListwiseDETRMixin):
            if head.centre_scores:
                # The last decoder layer is the one shown.
                shown = len(head.loss_cls.layers) - 1
                branches = getattr(head, 'cls_branches', None)
                layer = branches[shown] if branches else head.fc_cls
                loss = head.loss_cls.layers[shown].loss
                found.append(_fold(name, loss, partial(_lower_bias, layer)))
        elif isinstance(getattr(head, 'loss_cls', None), HeadLoss) and hasattr(head, 'fc_cls'):
            stage = re.fullmatch(r'(.+)\.\d+', name)
            stages.setdefault(stage[1] if stage else name, {})[name] = head
    for heads in stages.values():
        found += _fold_box_heads(model, heads)
    return found


def _fold(name: str, loss: nn.Module, lower: Callable[[Tensor], str]) -> HeadCentre:
    """Fold the centre of one loss; ``lower`` subtracts from the bias, or says why it cannot."""
    centre = score_centre(loss)
    if centre is None:
        reason = (
            f'{type(loss).__name__} has no logit_centre(), so the scores are wherever training '
            'left them; a stock config needs its own score_thr'
        )
        return HeadCentre(name, (), reason)
    centre = centre.detach().clone()
    numbers = tuple(centre.flatten().tolist())
    return HeadCentre(name, numbers, lower(centre) if any(numbers) else '')


@torch.no_grad()
def _lower_bias(layer: nn.Module, centre: Tensor) -> str:
    layer.bias -= centre.to(layer.bias)
    return ''


def _fold_box_heads(model: nn.Module, heads: dict[str, nn.Module]) -> list[HeadCentre]:
    """Fold the centres of a box head, or of the stages of a cascade."""
    refusal = _own_predictions(model, heads)

    def lower(layer: nn.Module, centre: Tensor) -> str:
        return refusal or _lower_bias(layer, centre)

    found = [_fold(k, x.loss_cls, partial(lower, x.fc_cls)) for k, x in heads.items()]
    if len(heads) > 1 and not refusal:
        # A cascade shows the mean of the raw scores of its stages, less the centre of the last.
        centres = [torch.tensor(one.centre if one.folded else (0.0,)) for one in found]
        last = (len(centres) - 1) * centres[-1] - sum(centres[:-1])
        _lower_bias(list(heads.values())[-1].fc_cls, last)
    return found


def _own_predictions(model: nn.Module, heads: dict[str, nn.Module]) -> str:
    """How box heads do not show scores as mmdet's heads do."""
    from mmdet.models.roi_heads import CascadeRoIHead
    from mmdet.models.roi_heads.bbox_heads import BBoxHead

    def differs(module: nn.Module, base: type, *methods: str) -> bool:
        return any(getattr(type(module), name, None) is not getattr(base, name) for name in methods)

    for name, head in heads.items():
        layer = head.fc_cls
        kind = type(head).__name__
        if differs(head, BBoxHead, '_predict_by_feat_single'):
            return f'{kind} predicts boxes in a way of its own'
        if not isinstance(layer, nn.Linear) or layer.bias is None:
            return f'fc_cls of {kind} is not a linear layer with a bias'
        if name.rpartition('.')[2].isdigit():
            holder = model.get_submodule('.'.join(name.split('.')[:-2]))
            if differs(holder, CascadeRoIHead, 'predict_bbox', '_refine_roi'):
                kind = type(holder).__name__
                return f'{kind} puts the scores of its stages together in a way of its own'
    return ''


def _lower_tried_bias(head: ListwiseMixin, centre: Tensor) -> str:
    """Subtract the centre from the bias of a dense head, if its scores then move along."""
    host = head.host.__name__
    if isinstance(head, JointPredictions):
        return f"{host} shows the product of class and objectness, and the centre is the product's"
    if head.traits.probabilities:
        return f'the scores of {host} are products of probabilities, not the output of one layer'
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
    return f'the raw scores of {host} {reason}'


def _features(head: ListwiseMixin) -> tuple[Tensor, ...]:
    generator = getattr(head, 'prior_generator', None) or head.square_anchor_generator
    weight = next(head.parameters())
    shape = (1, head.in_channels, _SIDE, _SIDE)
    random = torch.Generator().manual_seed(0)
    levels = range(generator.num_levels)
    return tuple(torch.randn(shape, generator=random).to(weight) for _ in levels)


def _last_biases(head: ListwiseMixin, features: tuple[Tensor, ...]) -> Iterator[nn.Parameter]:
    """Biases by which each raw score grows as the bias itself does."""
    scores = head(features)[0]
    channels = scores[0].size(1)
    named = head.named_parameters()
    candidates = [x for name, x in named if name.endswith('bias') and x.numel() == channels]
    if not candidates:
        return
    with torch.enable_grad():
        total = sum(level.sum() for level in scores)
        slopes = torch.autograd.grad(total, candidates, allow_unused=True)
    places = scores[0][0, 0].numel()
    for bias, slope in zip(candidates, slopes):
        if slope is not None:
            # A layer may serve some of the levels only.
            levels = slope / places
            if (levels == levels[0].round()).all() and levels[0] > 0:
                yield bias
