"""What the class loss of a detector is computed from, for every library the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from mmrank.losses import HeadLoss

from .detectors import RankingSettings, centre_of


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
        quality, labels = targets.detach().max(-1)
        return cls(logits, torch.where(quality > 0, labels, logits.size(-1)), quality)

    def loss(self, ranking: HeadLoss, **values: Tensor) -> Tensor | dict[str, Tensor]:
        """The loss by ``ranking``, which gets the quality if it takes one, and further values."""
        if ranking.box_input == 'quality':
            values['quality'] = self.quality.flatten()
        labels = self.labels.flatten()
        counts = None if self.counts is None else self.counts.flatten().float()
        # The factor says that C is the background, also of one class.
        return ranking(self.logits.flatten(0, -2), labels, counts, avg_factor=len(labels), **values)


def put_rankings(
    owner: nn.Module,
    losses: dict[str, HeadLoss],
    layers: dict[str, Sequence[nn.Module]],
    settings: RankingSettings,
) -> None:
    """Make the losses modules of ``owner.rankings``, and so part of what is saved and averaged.

    In eval mode the ``layers`` that score the classes show the mean positive of their loss at 0.
    """
    device = next(iter(layers.values()))[0].weight.device
    owner.rankings = nn.ModuleDict(losses).to(device).train(owner.training)
    for name in layers if settings.centre_scores else ():
        for layer in layers[name]:
            show_centred(layer, owner.rankings[name])


def show_centred(layer: nn.Module, ranking: HeadLoss) -> None:
    """In eval mode, let a layer that scores classes show the mean positive of a loss at 0."""
    layer.register_forward_hook(partial(_subtract_centre, ranking))


def keep_centred(model: nn.Module) -> None:
    """Undo :func:`show_centred`; the centre moves into the bias of the layers."""
    for layer in model.modules():
        for key, hook in [*layer._forward_hooks.items()]:
            if isinstance(hook, partial) and hook.func is _subtract_centre:
                with torch.no_grad():
                    layer.bias -= _centre_of_channels(hook.args[0], layer.bias)
                del layer._forward_hooks[key]


def _subtract_centre(ranking: HeadLoss, layer: nn.Module, args: tuple, scores: Tensor) -> Tensor:
    if layer.training:
        return scores
    centre = _centre_of_channels(ranking, layer.bias).to(scores)
    return scores - (centre.view(-1, 1, 1) if isinstance(layer, nn.Conv2d) else centre)


def _centre_of_channels(ranking: HeadLoss, bias: Tensor) -> Tensor:
    """Of several anchors, the class runs fastest."""
    centre = centre_of(ranking, bias.detach())
    return centre.repeat(bias.numel() // centre.numel())
