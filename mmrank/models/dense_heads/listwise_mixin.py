"""Runs a dense head of mmdet with a loss that ranks all its scores."""

import torch
from mmengine.dist import all_reduce, get_world_size
from torch import Tensor

from mmrank.losses.protocols import HasLogitCentre, TakesBoxValues
from mmrank.made_class import MadeClass
from mmrank.models.federated_annotations import (
    check_federated_host,
    check_federated_loss,
    exhaustive_classes,
    image_metas,
    images_of_levels,
)
from mmrank.models.uncentred_scores import without_threshold
from mmrank.registry import MODELS
from mmrank.training_set import TrainingSet

from .box_collector import (
    BOX_ARGUMENTS,
    BoxCollector,
    check_balance,
    check_box_loss,
    scale_to_classification,
    total_loss,
)
from .host_heads import traits_of
from .level_collector import LevelCollector, to_logits


class ListwiseMixin(MadeClass):
    """Put before a dense head: one call of the loss per batch.

    The head runs its own ``loss_by_feat`` with a collector in place of ``loss_cls``, and one in
    place of ``loss_bbox`` if the loss requires the boxes; the gathered scores then go through the
    real loss once.

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
        federated: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(*args, loss_cls=loss_cls, **kwargs)
        self.federated = federated
        if federated:
            check_federated_host(self.host)
            check_federated_loss(self.loss_cls, self.host.__name__)
        self.centre_scores = centre_scores
        self.balance_boxes = balance_boxes
        self.traits = traits_of(self.host)
        self.training_set = TrainingSet()
        self._warned = False
        loss = self.loss_cls
        if isinstance(loss, TakesBoxValues) and loss.box_input is not None:
            self._collect_boxes(loss.box_input)
        self.loss_cls = LevelCollector(
            self.loss_cls, self._build_pointwise(pointwise_loss), self.traits.probabilities
        )
        for name in self.traits.other_losses:
            if hasattr(self, name):
                setattr(self, name, self.loss_cls)

    def _build_pointwise(self, config: dict | None):
        if not self.traits.pointwise:
            if config is not None:
                raise ValueError(
                    f'pointwise_loss={config!r} has no effect: {self.host.__name__} does not '
                    'choose positives with it; remove it'
                )
            return None
        if config is None:
            config = dict(type='mmdet.FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25)
        return MODELS.build(config)

    def _collect_boxes(self, kind: str) -> None:
        user = type(self.loss_cls).__name__
        traits, host = self.traits, self.host
        if traits.no_boxes is not None:
            raise ValueError(
                f'{user} requires the boxes of the positives, which {host.__name__} does not '
                f"provide: {traits.no_boxes}. Use for example head_type='mmdet.ATSSHead'"
            )
        check_balance(self.loss_cls, self.balance_boxes)
        from mmdet.models.dense_heads import AnchorHead, SSDHead

        undecoded = not getattr(self, 'reg_decoded_bbox', True)
        level_loss = getattr(host, 'loss_by_feat_single', None)
        if undecoded and level_loss in (
            AnchorHead.loss_by_feat_single,
            SSDHead.loss_by_feat_single,
        ):
            raise ValueError(
                f'{user} requires decoded boxes, but {host.__name__} has '
                'reg_decoded_bbox=False; set reg_decoded_bbox=True and an IoU '
                "loss such as loss_bbox=dict(type='mmdet.GIoULoss')"
            )
        loss_bbox = getattr(self, traits.boxes)
        check_box_loss(loss_bbox, user)
        setattr(self, traits.boxes, BoxCollector(loss_bbox, kind))

    def loss(self, *args, **kwargs) -> dict:
        """Losses of a batch, as a detector of one stage calls for them.

        Args:
            *args: Those of the host head, the data samples last.
            **kwargs: Likewise.

        Raises:
            UserError: If the head has one class and the training set several.
        """
        # A detector of proposals gives every object class 0: the labels tell.
        if (
            self.num_classes == 1
            and self.training_set.has_several_classes()
            and any(
                sample.gt_instances.labels.any()
                for sample in kwargs.get('batch_data_samples', args[-1])
            )
        ):
            self._check_classes()
        return super().loss(*args, **kwargs)

    def _check_classes(self) -> None:
        self.training_set.check_classes(self.num_classes, f'bbox_head ({type(self).__name__})')

    def loss_by_feat(self, *args, **kwargs) -> dict:
        """Losses of the host head, the classification loss listwise.

        Raises:
            UserError: If the training set has another number of classes, or does not say which
                classes an image is annotated for.
        """
        if self.num_classes > 1:  # of proposals there is one class
            self._check_classes()
        boxes = getattr(self, self.traits.boxes, None)
        boxes = boxes if isinstance(boxes, BoxCollector) else None
        federated = self._federated(args, kwargs) if self.federated else None
        self.loss_cls.open()
        if boxes is not None:
            boxes.open()
        losses = super().loss_by_feat(*args, **kwargs)
        told = {}
        if boxes is not None:
            told[BOX_ARGUMENTS[boxes.kind]] = boxes.close(self.loss_cls.targets, self.num_classes)
        ranked = self.loss_cls.close(federated, **told)
        if not isinstance(ranked, dict):
            ranked = dict(loss_cls=ranked)
        return self._merge(losses, dict(ranked), boxes)

    def _federated(self, args: tuple, kwargs: dict) -> tuple[Tensor, Tensor]:
        """What the images are annotated for, and the image of each row."""
        metas = image_metas(self.host.loss_by_feat, args, kwargs)
        cls_scores = args[0] if args else kwargs['cls_scores']
        where = f'bbox_head ({type(self).__name__})'
        return (
            exhaustive_classes(metas, self.num_classes, cls_scores[0].device, where),
            images_of_levels(cls_scores, self.num_classes, self.traits.by_image),
        )

    def _merge(self, losses: dict, ranked: dict, boxes: BoxCollector | None) -> dict:
        """Put what the ranking loss returned under the host's names."""
        cls_key = self._only(
            losses, [k for k in losses if k.endswith('cls') and 'bbox' not in k], 'classification'
        )
        losses[cls_key] = ranked.pop('loss_cls')
        if 'loss_bbox' in ranked:
            keys = [self.traits.box_key] if self.traits.box_key else None
            key = self._only(losses, keys or self._box_keys(losses), 'box')
            loss_bbox = ranked.pop('loss_bbox')
            if boxes is not None and boxes.kind == 'loss':
                # Zeros by which every output stays on the graph.
                loss_bbox = loss_bbox + total_loss(losses[key])
            losses[key] = loss_bbox
        losses.update(ranked)
        if self.balance_boxes:
            losses = scale_to_classification(losses, [cls_key], self._box_keys(losses))
        return losses

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
        """Targets of the host head, the box normaliser that of all ranks.

        ``AnchorHead.loss_by_feat`` divides by the rank's own number of positives, so ranks with few
        boxes would count for more.
        """
        targets = super().get_targets(*args, **kwargs)
        if get_world_size() == 1 or not self._normalises_by_own_rank():
            return targets
        targets = list(targets)
        factor = torch.tensor(float(targets[4]), device=targets[0][0].device)
        all_reduce(factor, op='mean')
        # As a tensor: the host need not wait for the other ranks.
        targets[4] = factor
        return tuple(targets)

    def _normalises_by_own_rank(self) -> bool:
        from mmdet.models.dense_heads import AnchorHead, RPNHead, SSDHead

        return getattr(self.host, 'loss_by_feat', None) in (
            AnchorHead.loss_by_feat,
            RPNHead.loss_by_feat,
            SSDHead.loss_by_feat,
        )

    def predict_by_feat(self, cls_scores: list[Tensor], *args, **kwargs):
        """Predictions, the mean positive score shown as 0.5.

        Subtracting one number from all scores of a class keeps its ranking;
        it makes ``score_thr`` mean the same for every run.
        """
        centre = None
        if isinstance(self.loss_cls.loss, HasLogitCentre):
            centre = self.loss_cls.loss.logit_centre()
        if centre is not None and self.centre_scores:
            cls_scores = [self._centre(s, centre) for s in cls_scores]
        results = super().predict_by_feat(cls_scores, *args, **kwargs)
        if centre is None and not any(map(len, results)):
            again = without_threshold(
                super().predict_by_feat,
                (cls_scores, *args),
                kwargs,
                cfg='cfg',
                default=self.test_cfg,
                loss=self.loss_cls.loss,
                warn=not self._warned,
            )
            self._warned |= again is not None
            results = results if again is None else again
        return results

    def _centre(self, scores: Tensor, centre: Tensor) -> Tensor:
        if self.traits.probabilities:
            return self._subtract(to_logits(scores), centre).sigmoid()
        return self._subtract(scores, centre)

    @staticmethod
    def _subtract(scores: Tensor, centre: Tensor) -> Tensor:
        """Subtract from (N, A * C, H, W), the class running fastest."""
        repeats = scores.size(1) // centre.numel()
        return scores - centre.to(scores.dtype).repeat(repeats)[:, None, None]
