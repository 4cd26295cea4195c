"""Runs a dense head of mmdet with a loss that ranks all its scores."""

import inspect

import torch
from mmengine.dist import all_reduce
from torch import Tensor

from mmrank.distributed import training_group
from mmrank.losses import HeadLoss
from mmrank.losses.ranking.rank_sort import total_loss
from mmrank.models.federated_annotations import (
    check_federated_host,
    check_federated_loss,
    exhaustive_classes,
    images_of_levels,
)
from mmrank.models.score_centre import BalancedHead, BoxesWithoutCentre, score_centre
from mmrank.training_set import TrainingSet

from .collectors import (
    BoxCollector,
    LevelCollector,
    collect_boxes,
    has_boxes,
    to_logits,
    wants_boxes,
)
from .host_heads import traits_of


class RankingHeadMixin(BalancedHead):
    """Settings that the mixins of all dense heads share."""

    doc_suffix = 'on a listwise loss'

    def __init__(
        self, *args, loss_cls: dict, centre_scores: bool = True, federated: bool = False, **kwargs
    ) -> None:
        super().__init__(*args, loss_cls=loss_cls, **kwargs)
        if isinstance(self.loss_cls, HeadLoss):
            self.loss_cls.held_by(self)
        self.federated = federated
        if federated:
            check_federated_host(self.host)
            check_federated_loss(self.loss_cls, self.host.__name__)
        self.centre_scores = centre_scores
        self.training_set = TrainingSet()

    @property
    def _where(self) -> str:
        return f'bbox_head ({type(self).__name__})'

    def _box_collector(self, attribute: str) -> BoxCollector | None:
        boxes = getattr(self, attribute, None)
        return boxes if isinstance(boxes, BoxCollector) else None

    def _exhaustive_classes(self, scores: Tensor, args: tuple, kwargs: dict) -> Tensor:
        """(N, C) classes that the images are annotated for exhaustively."""
        bound = inspect.signature(self.host.loss_by_feat).bind(self, *args, **kwargs)
        metas = bound.arguments['batch_img_metas']
        return exhaustive_classes(metas, self.num_classes, scores.device, self._where)


class ListwiseMixin(BoxesWithoutCentre, RankingHeadMixin):
    """Mixin for dense heads: one call of the loss per batch.

    The head runs its own ``loss_by_feat`` with a collector in place of ``loss_cls``, and one in
    place of ``loss_bbox`` if the loss requires the boxes; then the loss is called once on the
    gathered scores.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.traits = traits_of(self.host)
        loss = self.loss_cls
        can_pass_boxes = self.traits.no_boxes is None and (
            self._has_known_codes() or has_boxes(getattr(self, self.traits.boxes))
        )
        if wants_boxes(loss, can_pass_boxes):
            if self.traits.no_boxes is not None:
                raise ValueError(
                    f'{type(loss).__name__} requires the boxes of the positives, which '
                    f'{self.host.__name__} does not provide: {self.traits.no_boxes}. Use for '
                    "example head_type='mmdet.ATSSHead'"
                )
            collect_boxes(self, self.traits.boxes, self._has_known_codes())
        self.loss_cls = LevelCollector(loss, self.traits.probabilities)
        for name in self.traits.other_losses:
            if hasattr(self, name):
                setattr(self, name, self.loss_cls)

    def _has_known_codes(self) -> bool:
        """Whether the box loss gets the box codes of anchors, or decoded boxes."""
        from mmdet.models.dense_heads import AnchorHead

        return getattr(self.host, 'loss_by_feat_single', None) is AnchorHead.loss_by_feat_single

    def loss(self, *args, **kwargs) -> dict:
        # A detector of proposals gives every object class 0: the labels tell.
        if self.num_classes == 1 and self.training_set.has_several_classes():
            samples = kwargs.get('batch_data_samples', args[-1])
            if any(sample.gt_instances.labels.any() for sample in samples):
                self.training_set.check_classes(self.num_classes, self._where)
        return super().loss(*args, **kwargs)

    def loss_by_feat(self, *args, **kwargs) -> dict:
        if self.num_classes > 1:  # of proposals there is one class
            self.training_set.check_classes(self.num_classes, self._where)
        boxes = self._box_collector(self.traits.boxes)
        federated = None
        if self.federated:
            cls_scores = args[0] if args else kwargs['cls_scores']
            images = images_of_levels(cls_scores, self.num_classes, self.traits.by_image)
            federated = self._exhaustive_classes(cls_scores[0], args, kwargs), images
        self.loss_cls.open()
        if boxes is not None:
            boxes.open()
        losses = super().loss_by_feat(*args, **kwargs)
        box_values = {}
        if boxes is not None:
            box_values = boxes.close(self.loss_cls.targets, self.num_classes)
        *scores, avg_factor = self.loss_cls.gather(federated)
        ranked = self.loss_cls.loss(*scores, avg_factor=avg_factor, **box_values)
        ranked = dict(ranked) if isinstance(ranked, dict) else dict(loss_cls=ranked)
        # The outputs of the ranking loss get the host's names.
        cls_keys = [k for k in losses if k.endswith('cls') and 'bbox' not in k]
        cls_key = self._only(losses, cls_keys, 'classification')
        losses[cls_key] = ranked.pop('loss_cls')
        if 'loss_bbox' in ranked:
            keys = [self.traits.box_key] if self.traits.box_key else self._box_keys(losses)
            key = self._only(losses, keys, 'box')
            loss_bbox = ranked.pop('loss_bbox')
            if boxes is not None and boxes.kind == 'loss':
                # Zeros by which every output stays on the graph.
                loss_bbox = loss_bbox + total_loss(losses[key])
            losses[key] = loss_bbox
        losses.update(ranked)
        return self._balanced(losses, [cls_key], self._box_keys(losses))

    def loss_by_feat_single(self, *args, **kwargs):
        boxes = self._box_collector(self.traits.boxes)
        if boxes is not None and boxes.coder is not None:
            # The third argument of the heads that have box losses on codes.
            boxes.note_anchors(args[2])
        return super().loss_by_feat_single(*args, **kwargs)

    def _only(self, losses: dict, keys: list[str], kind: str) -> str:
        if len(keys) != 1:
            raise RuntimeError(
                f'{self.host.__name__} reports {len(keys)} {kind} losses ({keys}) among '
                f'{list(losses)}; ListwiseHead supports heads with exactly one'
            )
        return keys[0]

    @staticmethod
    def _box_keys(losses: dict) -> list[str]:
        return [name for name in losses if 'loss' in name and ('bbox' in name or 'pts' in name)]

    def get_targets(self, *args, **kwargs):
        """Targets of the host head, the box normaliser averaged over all ranks.

        ``AnchorHead.loss_by_feat`` divides by the rank's own number of positives, so ranks with few
        boxes would count for more.
        """
        from mmdet.models.dense_heads import AnchorHead, RPNHead

        targets = super().get_targets(*args, **kwargs)
        by_own_rank = self.host.loss_by_feat in (AnchorHead.loss_by_feat, RPNHead.loss_by_feat)
        if training_group(self) is None or not by_own_rank:
            return targets
        targets = list(targets)
        # As a tensor: the host need not wait for the other ranks.
        targets[4] = torch.tensor(float(targets[4]), device=targets[0][0].device)
        all_reduce(targets[4], op='mean')
        return tuple(targets)

    def predict_by_feat(self, cls_scores: list[Tensor], *args, **kwargs):
        """Predictions, the mean positive score shown as 0.5.

        Subtracting one number from all scores of a class keeps its ranking; it makes ``score_thr``
        mean the same for every run.
        """
        loss = self.loss_cls.loss
        centre = score_centre(loss)
        if centre is not None and self.centre_scores:
            cls_scores = [self._centred(s, centre) for s in cls_scores]
        args = (cls_scores, *args)
        return self._predict_boxes(
            loss, super().predict_by_feat, args, kwargs, 'cfg', self.test_cfg
        )

    def _centred(self, scores: Tensor, centre: Tensor) -> Tensor:
        if self.traits.probabilities:
            return self._subtract(to_logits(scores), centre).sigmoid()
        return self._subtract(scores, centre)

    @staticmethod
    def _subtract(scores: Tensor, centre: Tensor) -> Tensor:
        """Subtract from (N, A * C, H, W), the class running fastest."""
        repeats = scores.size(1) // centre.numel()
        return scores - centre.to(scores.dtype).repeat(repeats)[:, None, None]
