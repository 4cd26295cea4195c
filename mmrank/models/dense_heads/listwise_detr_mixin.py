"""Runs a head of the DETR family with a loss that ranks all queries."""

import copy
import logging
from collections.abc import Callable

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from mmrank.errors import UserError
from mmrank.losses.ranking.separate_rankings import can_be_separate, separate_rankings
from mmrank.models.score_centre import score_centre

from .collectors import LevelCollector, collect_boxes, has_boxes, wants_boxes
from .listwise_mixin import RankingHeadMixin

#: Decoder layers of mmdet's configs; heads that share one classification layer do not know how many
#: there are.
DECODER_LAYERS = 6


class _DecoderLosses(nn.Module):
    """Replaces ``loss_cls`` of a query head: a copy of the loss for each ranking.

    The scores of a decoder layer over all queries and images are one ranking. The scores of the
    encoder, of which two-stage detectors take the best as queries, are another, and so are the
    scores of the denoising queries of each layer.

    With ``together`` rankings of one size may be computed in one batched call. The head gets a 0
    for each, which :meth:`finish` replaces.
    """

    def __init__(
        self, loss: nn.Module, num_layers: int, encoder: bool, denoising: bool, together: bool
    ) -> None:
        super().__init__()
        self.use_sigmoid = True

        def collectors(number: int) -> nn.ModuleList:
            return nn.ModuleList(LevelCollector(copy.deepcopy(loss)) for _ in range(number))

        self.layers = collectors(num_layers)
        self.encoder = collectors(1)[0] if encoder else None
        self.denoising = collectors(num_layers if denoising else 0)
        self.together = together
        # Lists, so that they are not a second path to the same buffers in the state_dict.
        self._current: list[LevelCollector] = []
        # Collector, arguments of its loss, IoU of the boxes or None, and the 0 that the head got in
        # place of the loss.
        self._waiting: list[tuple[LevelCollector, tuple, Tensor | None, Tensor]] | None = None

    def begin(self) -> None:
        """Begin a batch, forgetting what an interrupted pass left."""
        losses = [x.loss for x in (*self.layers, *self.denoising)]
        self._waiting = [] if self.together and can_be_separate(losses) else None

    def open(self, collector: LevelCollector) -> None:
        collector.open()
        self._current = [collector]

    def forward(self, *args, **kwargs) -> Tensor:
        """Record a call of the head; returns a scalar 0."""
        return self._current[0](*args, **kwargs)

    def rank(
        self, collector: LevelCollector, federated: tuple[Tensor, Tensor] | None, **boxes: Tensor
    ) -> Tensor | dict[str, Tensor]:
        """Loss of the scores that a collector has gathered, or a scalar 0 in its place."""
        *scores, avg_factor = collector.gather(federated)
        if self._waiting is None or collector is self.encoder:
            return collector.loss(*scores, avg_factor=avg_factor, **boxes)
        shown = scores[0].new_zeros(())
        self._waiting.append((collector, tuple(scores), boxes.get('quality'), shown))
        return shown

    def finish(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copy what the head returns, with the losses of the rankings in place of their zeros."""
        waiting = self._waiting or []
        self._waiting = None
        found = {}
        for group in (self.layers, self.denoising):
            own = [x for x in waiting if any(x[0] is c for c in group)]
            if own:
                collectors, calls, ious, zeros = zip(*own)
                ious = None if ious[0] is None else ious
                values = separate_rankings([x.loss for x in collectors], list(calls), ious)
                found.update(zip(map(id, zeros), values))
        return {key: found.get(id(x), x) for key, x in losses.items()}


class ListwiseDETRMixin(RankingHeadMixin):
    """Mixin for DETR heads: ranks all queries, per decoder layer.

    The assigner stays the head's own: bipartite matching with its classification cost, on the raw
    scores.
    """

    def __init__(self, *args, num_layers: int | None = None, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        # (N, C) of the batch that is being computed.
        self._exhaustive: Tensor | None = None
        self._warned = False
        self._matching = []
        self._denoising = []
        loss = self.loss_cls
        two_stage = getattr(self, 'as_two_stage', False)
        denoising = hasattr(self.host, '_loss_dn_single')
        assigner = getattr(self, 'assigner', None)
        for cost in getattr(assigner, 'match_costs', ()):
            if type(cost).__name__ == 'ClassificationCost':
                raise UserError(
                    "train_cfg.assigner.match_costs has 'ClassificationCost', a softmax over the "
                    'classes and the background, but a ranking loss scores each class by itself, '
                    "without a background. Fix: dict(type='FocalLossCost', weight=2.0) in its place"
                )
        if two_stage and denoising and getattr(loss, 'mode', 'flatten') == 'per_class':
            raise UserError(
                "loss_cls.mode='per_class' leaves the scores of each class at a level of their "
                f'own, but {self.host.__name__} takes the proposals of the encoder by their best '
                "class. Fix: loss_cls.mode='flatten'"
            )
        if wants_boxes(loss, has_boxes(self.loss_iou)):
            collect_boxes(self, 'loss_iou', on_codes=False)
        # A head of another package may change the losses of its layers.
        of_mmdet = self.host.loss_by_feat.__module__.startswith('mmdet.')
        if known := getattr(self, 'num_pred_layer', 0):
            known -= int(self.as_two_stage)
            if num_layers not in (None, known):
                what = f'num_layers={num_layers} of the head, but the decoder has {known} layers'
                raise UserError(f'{what}; remove num_layers')
        layers = known or num_layers or DECODER_LAYERS
        self.loss_cls = _DecoderLosses(loss, layers, two_stage, denoising, together=of_mmdet)

    def loss_by_feat(self, all_layers_cls_scores: Tensor, *args, **kwargs):
        self.training_set.check_classes(self.num_classes, self._where)
        found = len(all_layers_cls_scores)
        expected = len(self.loss_cls.layers)
        if found != expected:
            what = f'{self._where} ranks {expected} decoder layers, but the decoder has {found}'
            raise UserError(what, f'bbox_head=dict(num_layers={found})')
        # In the order in which the heads of mmdet compute their losses.
        self._matching = [*self.loss_cls.layers, self.loss_cls.encoder]
        self._denoising = [*self.loss_cls.denoising]
        if self.federated:
            self._exhaustive = self._exhaustive_classes(
                all_layers_cls_scores, (all_layers_cls_scores, *args), kwargs
            )
        self.loss_cls.begin()
        losses = super().loss_by_feat(all_layers_cls_scores, *args, **kwargs)
        losses = self.loss_cls.finish(losses)
        self._exhaustive = None
        cls_keys = [k for k in losses if k.endswith('loss_cls')]
        box_keys = [k for k in losses if k.endswith(('loss_bbox', 'loss_iou'))]
        return self._balanced(losses, cls_keys, box_keys)

    def loss_by_feat_single(
        self, cls_scores: Tensor, bbox_preds: Tensor, batch_gt_instances: list, *args, **kwargs
    ):
        queries = cls_scores.size(1)
        objects = max((len(truth) for truth in batch_gt_instances), default=0)
        if objects > queries and not self._warned:
            self._warned = True
            print_log(
                f'An image has {objects} objects, but the detector only {queries} queries: the '
                f'objects that are left over train nothing. Fix: model.num_queries={objects} or '
                'more, as the largest number of objects in an image requires',
                logger='current',
                level=logging.WARNING,
            )
        found = cls_scores, bbox_preds, batch_gt_instances, *args
        return self._ranked(self._matching.pop(0), super().loss_by_feat_single, *found, **kwargs)

    def _loss_dn_single(self, dn_cls_scores: Tensor, *args, **kwargs):
        return self._ranked(
            self._denoising.pop(0), super()._loss_dn_single, dn_cls_scores, *args, **kwargs
        )

    def _ranked(
        self, collector: LevelCollector, host_losses: Callable, cls_scores: Tensor, *args, **kwargs
    ) -> tuple:
        """Classification, L1 and IoU loss of one ranking."""
        boxes = self._box_collector('loss_iou')
        self.loss_cls.open(collector)
        if boxes is not None:
            boxes.open()
        _, loss_bbox, loss_iou = host_losses(cls_scores, *args, **kwargs)
        if not collector.targets:
            # No denoising queries, since no image here has an object. Other ranks may have some,
            # and wait for this one in the loss.
            scores = cls_scores.reshape(-1, self.cls_out_channels)
            collector(scores, scores.new_zeros(len(scores), dtype=torch.long))
        box_values = {}
        if boxes is not None:
            box_values = boxes.close(collector.targets, self.num_classes)
        federated = None
        # Without denoising, the proposals of an encoder are for any class: all objects are of
        # its first.
        any_class = collector is self.loss_cls.encoder and not self.loss_cls.denoising
        if self._exhaustive is not None and not any_class:
            images = torch.arange(len(cls_scores), device=cls_scores.device)
            federated = self._exhaustive, images.repeat_interleave(cls_scores.size(1))
        ranked = self.loss_cls.rank(collector, federated, **box_values)
        if not isinstance(ranked, dict):
            return ranked, loss_bbox, loss_iou
        # The head's own is 0 and keeps every output on the graph.
        return ranked['loss_cls'], loss_bbox, ranked['loss_bbox'] + loss_iou

    def predict_by_feat(self, all_layers_cls_scores: Tensor, *args, **kwargs):
        centre = score_centre(self.loss_cls.layers[-1].loss)
        if centre is not None and self.centre_scores:
            all_layers_cls_scores = all_layers_cls_scores - centre.to(all_layers_cls_scores.dtype)
        return super().predict_by_feat(all_layers_cls_scores, *args, **kwargs)
