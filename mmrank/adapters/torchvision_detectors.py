"""RetinaNet and FCOS of torchvision on a ranking loss."""

import torch
from torch import Tensor, nn

from mmrank.distributed import training_group
from mmrank.errors import UserError, UserTypeError
from mmrank.imports import required_package
from mmrank.losses import HeadLoss
from mmrank.losses.ranking.rank_sort import with_balanced_boxes

from .class_part import (
    ClassPart,
    MadePart,
    RankingSettings,
    aligned_iou,
    check_labels,
    put_rankings,
)
from .detectors import check_fit

with required_package(
    'torchvision',
    "The adapter of torchvision's detectors",
    'install the torchvision that fits your torch, see pytorch.org',
):
    from torchvision.models.detection._utils import Matcher
    from torchvision.models.detection.fcos import FCOSHead
    from torchvision.models.detection.retinanet import RetinaNetHead, RetinaNetRegressionHead
    from torchvision.models.detection.roi_heads import RoIHeads as RoIHeads  # for torchvision_rcnn
    from torchvision.ops import generalized_box_iou_loss


class TorchvisionPart(MadePart):
    """Mixin for the heads of a detector. Their one loss is ``ranking_loss``."""

    balance_boxes: bool

    @property
    def ranking_loss(self) -> HeadLoss:
        return self.rankings['all']

    def balanced(self, losses: dict, class_key: str, box_key: str) -> dict:
        """The losses, the box loss scaled where the settings say so."""
        if not self.balance_boxes:
            return losses
        return with_balanced_boxes(losses, [class_key], [box_key], training_group(self))


class _RankingHead(TorchvisionPart):
    """Mixin for dense heads: all anchors or points of a batch are one ranking."""

    regression_head: RetinaNetRegressionHead  # of RetinaNet

    def compute_loss(
        self,
        targets: list[dict[str, Tensor]],
        head_outputs: dict[str, Tensor],
        anchors: list[Tensor],
        matched_idxs: list[Tensor],
    ) -> dict[str, Tensor]:
        """Losses of the host head, the classification loss a ranking.

        ``head_outputs`` has ``cls_logits`` (B, A, C), ``bbox_regression`` (B, A, 4) and others;
        ``matched_idxs`` are the (A,) object of each anchor, < 0 for none.
        """
        logits = head_outputs['cls_logits']
        fix = 'number the classes from 0, or make the model with a larger num_classes'
        check_labels([x['labels'] for x in targets], 0, logits.size(-1) - 1, fix)
        losses = super().compute_loss(  # pyright: ignore[reportAttributeAccessIssue]  # the host's
            targets,
            # The host's own classification loss is dropped: no graph.
            {**head_outputs, 'cls_logits': logits.detach()},
            anchors,
            matched_idxs,
        )
        matched = torch.stack(matched_idxs)
        labels = torch.full_like(matched, logits.size(-1))
        kind = self.ranking_loss.box_input
        if isinstance(self, FCOSHead):
            decode = self.box_coder.decode
        else:
            decode = self.regression_head.box_coder.decode_single
        boxes = []
        true = []
        all_codes = head_outputs['bbox_regression']
        for own, target, index, codes, places in zip(
            labels, targets, matched_idxs, all_codes, anchors
        ):
            rows = (index >= 0).nonzero().squeeze(1)
            own[rows] = target['labels'][index[rows]]
            if kind is not None:
                # In half precision areas of large boxes overflow.
                codes = codes[rows].to(torch.promote_types(codes.dtype, places.dtype))
                boxes.append(decode(codes, places[rows]))
                true.append(target['boxes'][index[rows]])
        quality = None
        values: dict[str, Tensor] = {}
        if kind == 'quality':
            quality = aligned_iou(torch.cat(boxes).detach(), torch.cat(true))
        elif kind == 'loss':
            # In [0, 1], as aLRP has it.
            values['box_loss'] = generalized_box_iou_loss(torch.cat(boxes), torch.cat(true)) / 2
        counts = matched != Matcher.BETWEEN_THRESHOLDS
        ranked = ClassPart(logits, labels, quality, counts).loss(self.ranking_loss, **values)
        ranked = ranked if isinstance(ranked, dict) else dict(loss_cls=ranked)
        losses['classification'] = ranked['loss_cls']
        if 'loss_bbox' in ranked:
            # Not the host's. One row keeps the outputs on the graph.
            graph = head_outputs['bbox_regression'][:1, :1].sum() * 0
            losses['bbox_regression'] = ranked['loss_bbox'] + graph
        return self.balanced(losses, 'classification', 'bbox_regression')


def attach(model: nn.Module, settings: RankingSettings) -> None:
    """Put a copy of the loss into the head."""
    head = model.head
    loss = settings.loss
    if not isinstance(head, (RetinaNetHead, FCOSHead)):
        what = f'model.head={type(head).__name__} has no adapter'
        fix = 'use a RetinaNetHead or FCOSHead of torchvision, or a class of yours derived from one'
        raise UserTypeError(what, fix)
    number = head.classification_head.num_classes
    check_fit(settings, number, type(model).__name__, (None, 'quality', 'loss'), balances=True)
    if settings.balance_boxes and loss.box_input == 'loss':
        what = f'balance_boxes=True: {type(loss).__name__} computes the box loss itself'
        raise UserError(what, 'remove balance_boxes')
    layers = {'all': [head.classification_head.cls_logits]}
    put_rankings(head, _RankingHead, layers, settings, balance_boxes=settings.balance_boxes)
