"""Faster, Mask and Keypoint R-CNN of torchvision on a ranking loss."""

import torch
from torch import Tensor, nn

from mmrank.errors import UserError, UserTypeError
from mmrank.tensors import at_least_float32

from .class_part import (
    ClassPart,
    RankingSettings,
    aligned_iou,
    centre_of,
    check_labels,
    put_rankings,
)
from .detectors import check_fit
from .torchvision_detectors import RoIHeads, TorchvisionPart


class RankingRoIHeads(TorchvisionPart, RoIHeads):
    """Mixin for RoI heads: all sampled boxes of a batch are one ranking.

    The score of a class is ``log(p / (1 - p))`` of its softmax probability p, so what is ranked is
    what the detector shows, and weights that were trained with cross-entropy already rank well.
    """

    shows_centre = False  # The post-processing shows it, by the background.
    centre_scores: bool

    def check_targets(self, targets: list[dict] | None) -> None:
        """As the host; also refuses labels that it would take for the background."""
        super().check_targets(targets)
        check_labels(
            [x['labels'] for x in targets or ()],
            1,
            self.box_predictor.cls_score.out_features - 1,
            'number the classes from 1, as 0 is the background of an R-CNN, or make the model with '
            'num_classes = classes + 1',
        )

    def select_training_samples(self, proposals: list[Tensor], targets: list[dict] | None) -> tuple:
        """The host's samples, which are noted."""
        samples = super().select_training_samples(proposals, targets)
        self.noted = [samples, targets]
        return samples

    def forward(self, features, proposals, image_shapes, targets=None) -> tuple:
        """Detections and losses of the host head, the classification loss a ranking."""
        hook = self.box_predictor.register_forward_hook(lambda _, args, out: self.noted.append(out))
        self.noted = []
        try:
            result, losses = super().forward(features, proposals, image_shapes, targets)
            if self.training:
                losses['loss_classifier'] = self._rank(*self.noted)
        finally:
            hook.remove()
            del self.noted
        if self.training:
            losses = self.balanced(losses, 'loss_classifier', 'loss_box_reg')
        return result, losses

    def _rank(self, samples: tuple, targets: list[dict], predicted: tuple) -> Tensor:
        proposals, matched, labels, _ = samples
        logits, codes = predicted
        labels = torch.cat(labels)
        number = logits.size(1) - 1
        # 0 is the background there, C here; < 0 counts for nothing.
        target = torch.where(labels > 0, labels - 1, number)
        quality = None
        if self.ranking_loss.box_input is not None:
            rows = (labels > 0).nonzero().squeeze(1)
            decoded = self.box_coder.decode(at_least_float32(codes.detach()), proposals)
            # The host matches the boxes of an image without objects to a first one.
            boxes = [x['boxes'] if len(x['boxes']) else x['boxes'].new_zeros(1, 4) for x in targets]
            true = torch.cat([x[i] for x, i in zip(boxes, matched)])
            quality = aligned_iou(decoded[rows, labels[rows]], true[rows])
        part = ClassPart(_log_odds(logits)[:, 1:], target, quality, labels >= 0)
        return part.loss(self.ranking_loss)

    def postprocess_detections(self, class_logits, *args, **kwargs) -> tuple:
        """The host's detections, the mean positive score shown as 0.5."""
        if self.centre_scores:
            class_logits = class_logits.clone()
            class_logits[:, 0] += centre_of(self.ranking_loss, class_logits).mean()
        return super().postprocess_detections(class_logits, *args, **kwargs)

    def leave(self, model: nn.Module) -> None:
        """Undo the adapter; the centre moves into the bias of the background."""
        if self.centre_scores:
            bias = self.box_predictor.cls_score.bias
            with torch.no_grad():
                bias[0] += centre_of(self.ranking_loss, bias.detach()).mean()
        super().leave(model)


def _log_odds(logits: Tensor) -> Tensor:
    """(n, C) logits to ``log(p / (1 - p))`` of their softmax p, at least float32.

    ``1 - p`` of the highest score, which may be close to 1, is the sum of the others.
    """
    log_p = at_least_float32(logits).log_softmax(1)
    top = log_p.detach().argmax(1, keepdim=True)
    others = log_p.scatter(1, top, -torch.inf)
    rest = torch.log1p(-others.exp()).scatter(1, top, others.logsumexp(1, keepdim=True))
    return log_p - rest


def attach(model: nn.Module, settings: RankingSettings) -> None:
    """Put a copy of the loss into the heads."""
    heads = model.get_submodule('roi_heads')
    loss = settings.loss
    predictor = getattr(heads.box_predictor, 'cls_score', None)
    if not isinstance(heads, RoIHeads) or not isinstance(predictor, nn.Linear):
        raise UserTypeError(
            f'model.roi_heads={type(heads).__name__} has no adapter. Fix: use RoIHeads of '
            'torchvision with a FastRCNNPredictor, or classes of yours derived from these'
        )
    if getattr(loss, 'mode', 'flatten') == 'per_class':
        raise UserError(
            "mode='per_class' leaves the scores of each class at a level of their own, and a "
            f"softmax compares them. Fix: {type(loss).__name__}(mode='flatten')"
        )
    check_fit(settings, predictor.out_features - 1, type(model).__name__, balances=True)
    put_rankings(
        heads,
        RankingRoIHeads,
        {'all': [predictor]},
        settings,
        balance_boxes=settings.balance_boxes,
        centre_scores=settings.centre_scores,
    )
