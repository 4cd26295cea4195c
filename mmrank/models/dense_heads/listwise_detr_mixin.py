"""Runs a head of the DETR family with a loss that ranks all queries."""

import logging
from collections.abc import Callable

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from mmrank.errors import UserError
from mmrank.losses.protocols import HasLogitCentre, TakesBoxValues
from mmrank.made_class import MadeClass
from mmrank.models.federated_annotations import (
    check_federated_host,
    check_federated_loss,
    exhaustive_classes,
    image_metas,
)
from mmrank.training_set import TrainingSet

from .box_collector import (
    BOX_ARGUMENTS,
    BoxCollector,
    check_balance,
    check_box_loss,
    scale_to_classification,
)
from .decoder_losses import DecoderLosses
from .level_collector import LevelCollector

#: Decoder layers of mmdet's configs; heads that share one classification
#: layer do not know how many there are.
DECODER_LAYERS = 6


class ListwiseDETRMixin(MadeClass):
    """Put before a DETR head: one ranking of all queries for each layer.

    The assigner stays the head's own: bipartite matching with its classification cost, on the raw
    scores.

    Attributes:
        gathers_scores: Tells ranking losses that this head may build them.
    """

    gathers_scores = True

    def __init__(
        self,
        *args,
        loss_cls: dict,
        centre_scores: bool = True,
        balance_boxes: bool = False,
        pointwise_loss: dict | None = None,
        num_layers: int | None = None,
        federated: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(*args, loss_cls=loss_cls, **kwargs)
        self.federated = federated
        if federated:
            check_federated_host(self.host)
            check_federated_loss(self.loss_cls, self.host.__name__)
        # (N, C) of the batch that is being computed.
        self._exhaustive: Tensor | None = None
        if pointwise_loss is not None:
            raise UserError(
                f'pointwise_loss={pointwise_loss!r} has no effect: {self.host.__name__} matches '
                'its queries one to one; remove it'
            )
        self.centre_scores = centre_scores
        self.balance_boxes = balance_boxes
        self.training_set = TrainingSet()
        self._said: set[str] = set()
        self._matching, self._denoising = [], []
        loss = self.loss_cls
        two_stage = getattr(self, 'as_two_stage', False)
        denoising = hasattr(self.host, '_loss_dn_single')
        self._check_matching()
        self._check_proposals(loss, two_stage and denoising)
        if isinstance(loss, TakesBoxValues) and loss.box_input is not None:
            check_balance(loss, balance_boxes)
            check_box_loss(self.loss_iou, type(loss).__name__)
            self.loss_iou = BoxCollector(self.loss_iou, loss.box_input)
        # A head of another package may change the losses of its layers.
        of_mmdet = self.host.loss_by_feat.__module__.startswith('mmdet.')
        self.loss_cls = DecoderLosses(
            loss, self._decoder_layers(num_layers), two_stage, denoising, together=of_mmdet
        )

    def _decoder_layers(self, num_layers: int | None) -> int:
        known = getattr(self, 'num_pred_layer', None)
        if known is None:
            return DECODER_LAYERS if num_layers is None else num_layers
        known -= int(self.as_two_stage)
        if num_layers not in (None, known):
            raise UserError(
                f'num_layers={num_layers} of the head, but the decoder has '
                f'{known} layers; remove num_layers'
            )
        return known

    def _check_matching(self) -> None:
        """Refuse a cost that needs the column of the background."""
        assigner = getattr(self, 'assigner', None)
        for cost in getattr(assigner, 'match_costs', ()):
            if type(cost).__name__ == 'ClassificationCost':
                raise UserError(
                    "train_cfg.assigner.match_costs has 'ClassificationCost', a softmax over the "
                    'classes and the background, but a ranking loss scores each class by itself, '
                    "without a background. Fix: dict(type='FocalLossCost', weight=2.0) in its place"
                )

    def _check_proposals(self, loss: nn.Module, best_class: bool) -> None:
        """Refuse one ranking per class where classes are compared."""
        if best_class and getattr(loss, 'mode', 'flatten') == 'per_class':
            raise UserError(
                "loss_cls.mode='per_class' leaves the scores of each class at a level of their "
                f'own, but {self.host.__name__} takes the proposals of the encoder by their best '
                "class. Fix: loss_cls.mode='flatten'"
            )

    def loss_by_feat(self, all_layers_cls_scores: Tensor, *args, **kwargs):
        """Losses of the host head, each classification loss a ranking.

        Raises:
            UserError: If the training set has another number of classes or does not say which of
                them an image is annotated for, or the decoder has another number of layers.
        """
        name = f'bbox_head ({type(self).__name__})'
        self.training_set.check_classes(self.num_classes, name)
        found, expected = len(all_layers_cls_scores), len(self.loss_cls.layers)
        if found != expected:
            raise UserError(
                f'{name} ranks {expected} decoder layers, but the decoder '
                f'has {found}. Fix: bbox_head=dict(num_layers={found})'
            )
        # In the order in which the heads of mmdet compute their losses.
        self._matching = [*self.loss_cls.layers, self.loss_cls.encoder]
        self._denoising = [*self.loss_cls.denoising]
        if self.federated:
            metas = image_metas(self.host.loss_by_feat, (all_layers_cls_scores, *args), kwargs)
            self._exhaustive = exhaustive_classes(
                metas, self.num_classes, all_layers_cls_scores.device, name
            )
        self.loss_cls.begin()
        losses = super().loss_by_feat(all_layers_cls_scores, *args, **kwargs)
        losses = self.loss_cls.finish(losses)
        self._exhaustive = None
        if self.balance_boxes:
            losses = scale_to_classification(
                losses,
                [k for k in losses if k.endswith('loss_cls')],
                [k for k in losses if k.endswith(('loss_bbox', 'loss_iou'))],
            )
        return losses

    def loss_by_feat_single(
        self, cls_scores: Tensor, bbox_preds: Tensor, batch_gt_instances: list, *args, **kwargs
    ):
        """Losses of one decoder layer, or of the encoder."""
        self._warn_of_many_objects(cls_scores.size(1), batch_gt_instances)
        return self._ranked(
            self._matching.pop(0),
            super().loss_by_feat_single,
            cls_scores,
            bbox_preds,
            batch_gt_instances,
            *args,
            **kwargs,
        )

    def _loss_dn_single(self, dn_cls_scores: Tensor, *args, **kwargs):
        """Losses of the denoising queries of one decoder layer."""
        return self._ranked(
            self._denoising.pop(0), super()._loss_dn_single, dn_cls_scores, *args, **kwargs
        )

    def _ranked(
        self, collector: LevelCollector, host_losses: Callable, cls_scores: Tensor, *args, **kwargs
    ) -> tuple:
        """Classification, L1 and IoU loss of one ranking."""
        boxes = self.loss_iou
        boxes = boxes if isinstance(boxes, BoxCollector) else None
        self.loss_cls.open(collector)
        if boxes is not None:
            boxes.open()
        _, loss_bbox, loss_iou = host_losses(cls_scores, *args, **kwargs)
        if not collector.targets:
            # No denoising queries, since no image here has an object. Other ranks may have some,
            # and wait for this one in the loss.
            scores = cls_scores.reshape(-1, self.cls_out_channels)
            collector(scores, scores.new_zeros(len(scores), dtype=torch.long))
        told = {}
        if boxes is not None:
            told[BOX_ARGUMENTS[boxes.kind]] = boxes.close(collector.targets, self.num_classes)
        ranked = self.loss_cls.rank(collector, self._federated(collector, cls_scores), **told)
        if not isinstance(ranked, dict):
            return ranked, loss_bbox, loss_iou
        # The head's own is 0 and keeps every output on the graph.
        return ranked['loss_cls'], loss_bbox, ranked['loss_bbox'] + loss_iou

    def _federated(
        self, collector: LevelCollector, cls_scores: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """What the images are annotated for, and the image of each row."""
        # Without denoising, the proposals of an encoder are those of any class: all objects are of
        # its first.
        any_class = collector is self.loss_cls.encoder and not self.loss_cls.denoising
        if self._exhaustive is None or any_class:
            return None
        images = torch.arange(len(cls_scores), device=cls_scores.device)
        return self._exhaustive, images.repeat_interleave(cls_scores.size(1))

    def get_targets(
        self,
        cls_scores_list: list[Tensor],
        bbox_preds_list: list[Tensor],
        batch_gt_instances: list,
        *args,
        **kwargs,
    ) -> tuple:
        """Targets of the host head; warns if it matches no object at all."""
        targets = super().get_targets(
            cls_scores_list, bbox_preds_list, batch_gt_instances, *args, **kwargs
        )
        objects = sum(map(len, batch_gt_instances))
        # The assigner works on the host: this number is there already.
        if objects and not targets[4]:
            self._warn_once(
                'no match',
                f'{type(self.assigner).__name__} matches no query to any of the {objects} objects '
                'of a batch: a ranking without a positive has no loss. Fix: '
                "train_cfg.assigner=dict(type='HungarianAssigner', ...), which matches each object",
            )
        return targets

    def _warn_of_many_objects(self, queries: int, truths: list) -> None:
        objects = max((len(truth) for truth in truths), default=0)
        if objects > queries:
            self._warn_once(
                'few queries',
                f'An image has {objects} objects, but the detector only {queries} queries: the '
                f'objects that are left over train nothing. Fix: model.num_queries={objects} or '
                'more, as the largest number of objects in an image requires',
            )

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            print_log(text, logger='current', level=logging.WARNING)

    def predict_by_feat(self, all_layers_cls_scores: Tensor, *args, **kwargs):
        """Predictions, the mean positive score shown as 0.5."""
        loss = self.loss_cls.layers[-1].loss
        centre = None
        if self.centre_scores and isinstance(loss, HasLogitCentre):
            centre = loss.logit_centre()
        if centre is not None:
            all_layers_cls_scores = all_layers_cls_scores - centre.to(all_layers_cls_scores.dtype)
        return super().predict_by_feat(all_layers_cls_scores, *args, **kwargs)
