"""Any box head of mmdet on a ranking loss, and RoI heads for federated annotations."""

from collections.abc import Mapping, Sequence

from mmengine.dist import all_reduce
from torch import Tensor

from mmrank.distributed import training_group
from mmrank.errors import UserError
from mmrank.losses import HeadLoss
from mmrank.losses.registered import box_loss
from mmrank.made_class import MadeClass, host_class
from mmrank.models.dense_heads.collectors import collect_boxes, wants_boxes
from mmrank.models.federated_annotations import exhaustive_classes, federated_weight
from mmrank.models.score_centre import BalancedHead, BoxesWithoutCentre
from mmrank.registry import MODELS
from mmrank.settings import one_of

_AVERAGES = ('rois', 'positives')


class ListwiseBBoxMixin(BoxesWithoutCentre, BalancedHead):
    """Mixin for box heads: passes the loss the boxes it ranks.

    :func:`mmrank.models.FederatedRoIHead` sets ``image_metas``; None where each image is
    annotated for all classes.
    """

    image_metas: Sequence[Mapping] | None = None

    def __init__(self, *args, box_average: str = 'rois', **kwargs) -> None:
        super().__init__(*args, **kwargs)
        one_of('box_average', box_average, _AVERAGES)
        if not isinstance(self.loss_cls, HeadLoss):
            raise TypeError(
                f'loss_cls={type(self.loss_cls).__name__} is not a ranking loss; use the box head '
                'itself, or a ranking loss such as mmrank.GradedAPLoss'
            )
        if self.balance_boxes and box_average != 'rois':
            raise ValueError(
                f'box_average={box_average!r} scales the box loss and balance_boxes=True removes '
                'every scale again; set only one of them'
            )
        self.box_average = box_average
        self.box_input = None
        if wants_boxes(self.loss_cls, self.with_reg):
            self.box_input = self.loss_cls.box_input
            collect_boxes(self, 'loss_bbox', on_codes=True)
        if self.box_input == 'loss' and box_average != 'rois':
            raise ValueError(
                f'box_average={box_average!r}: {type(self.loss_cls).__name__} computes the box '
                'loss itself; remove box_average'
            )

    def loss(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor | None,
        rois: Tensor,
        labels: Tensor,
        label_weights: Tensor,
        *box_targets: Tensor,
        reduction_override: str | None = None,
    ) -> dict[str, Tensor]:
        """``loss_cls``, a ranking of the (n, C) raw scores, ``acc_classes`` and ``loss_bbox``."""
        if self.box_input is not None:
            self.loss_bbox.open()
            self.loss_bbox.note_anchors(rois[:, 1:])
        targets = labels, label_weights, *box_targets
        reduction = dict(reduction_override=reduction_override)
        losses = super().loss(None, bbox_pred, rois, *targets, **reduction)
        if self.box_average == 'positives':
            positives = ((labels >= 0) & (labels < self.num_classes)).sum().float()
            if training_group(self) is not None:
                # DDP averages the gradients, so every rank divides by the mean.
                all_reduce(positives, op='mean')
            # Turns an average over the RoIs into one over the positives.
            losses['loss_bbox'] = losses['loss_bbox'] * (labels.numel() / positives.clamp(min=1))
        boxes = {}
        if self.box_input is not None:
            boxes = self.loss_bbox.close([labels], self.num_classes)
        if self.image_metas is not None:
            label_weights = self._federated_weight(rois, labels, label_weights)
        # Also without a single proposal: the other ranks wait for this one.
        ranked = self.loss_cls(cls_score, labels, label_weights, **reduction, **boxes)
        ranked = ranked if isinstance(ranked, dict) else dict(loss_cls=ranked)
        if self.box_input == 'loss':
            # The host's 0 keeps the box branch in the graph without objects.
            ranked['loss_bbox'] = ranked['loss_bbox'] + losses['loss_bbox']
        losses.update(ranked)
        losses.update(self.loss_cls.get_accuracy(cls_score, labels))
        return self._balanced(losses, ['loss_cls'], ['loss_bbox'])

    def _federated_weight(self, rois: Tensor, labels: Tensor, label_weights: Tensor) -> Tensor:
        """(n, C) weights that ignore classes which the images are not annotated for."""
        user = f'roi_head.bbox_head ({type(self).__name__})'
        exhaustive = exhaustive_classes(self.image_metas, self.num_classes, rois.device, user)
        images = rois[:, 0].long()
        return federated_weight(self.loss_cls, exhaustive, images, labels, label_weights)

    def predict_by_feat(self, *args, **kwargs) -> list:
        return self._predict_boxes(
            self.loss_cls, super().predict_by_feat, args, kwargs, 'rcnn_test_cfg', None
        )


@MODELS.register_module()
def ListwiseBBoxHead(head_type: str | type, *, loss_cls: dict, **kwargs):
    """Build a box head of mmdet that trains on a ranking loss.

    Losses that rank the scores alone also work in the stock head; this one fills in their settings,
    offers the box weights below, and passes the boxes to the losses that take them::

        bbox_head=dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss'))

    Keep all proposals: ``train_cfg.rcnn.sampler=dict(num=1000000, pos_fraction=1.0)``.

    Args:
        head_type: The head: its class, or registered name with its scope, e.g.
            ``mmdet.Shared2FCBBoxHead``, ``mmdet.Shared4Conv1FCBBoxHead``,
            ``mmdet.DoubleConvFCBBoxHead``: any head that uses ``BBoxHead.loss``.
        loss_cls: Config of the loss. ``num_classes`` is filled in where the loss takes it and the
            config does not set it.
        **kwargs: Arguments of the head, and

            - ``balance_boxes``: as in :func:`mmrank.models.ListwiseHead`.
            - ``box_average`` (str): what the box loss is an average over: ``rois`` as in the host,
              where the weight of a positive falls with the number of proposals, or ``positives``.
    """
    host = host_class('head_type', head_type, 'mmdet.Shared2FCBBoxHead')
    from mmdet.models.roi_heads.bbox_heads import BBoxHead

    if getattr(host, 'loss', None) is not BBoxHead.loss:
        raise TypeError(
            f"head_type={head_type!r} does not use the loss method of mmdet's BBoxHead, so it does "
            "not support a ranking loss; use for example 'mmdet.Shared2FCBBoxHead'"
        )
    loss_cls = box_loss('loss_cls', loss_cls, kwargs.get('num_classes'))
    return ListwiseBBoxMixin.class_for(host)(loss_cls=loss_cls, **kwargs)


class FederatedRoIMixin(MadeClass):
    """Mixin for RoI heads: passes the images to its box heads.

    A box head gets proposals without the meta information of their images.
    """

    name_prefix = 'Federated'
    doc_suffix = 'with federated annotations'

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for head in self._box_heads():
            if not isinstance(head, ListwiseBBoxMixin):
                raise UserError(
                    f'roi_head.bbox_head.type={type(head).__name__!r} cannot ignore classes that '
                    "an image is not annotated for. Fix: bbox_head=dict(type='mmrank."
                    f"ListwiseBBoxHead', head_type='mmdet.{type(head).__name__}', loss_cls=...)"
                )

    def _box_heads(self) -> list:
        heads = self.bbox_head
        # Cascade R-CNN has one for each stage.
        return [heads] if hasattr(heads, 'loss_cls') else list(heads)

    def loss(self, x: tuple, rpn_results_list: list, batch_data_samples: list) -> dict:
        """Losses of the host head, negatives only where an image is annotated exhaustively."""
        metas = [sample.metainfo for sample in batch_data_samples]
        for head in self._box_heads():
            head.image_metas = metas
        losses = super().loss(x, rpn_results_list, batch_data_samples)
        for head in self._box_heads():
            head.image_metas = None
        return losses


@MODELS.register_module()
def FederatedRoIHead(head_type: str | type, **kwargs):
    """Build a RoI head of mmdet for federated annotations.

    For data sets such as LVIS, whose images are annotated for some of the classes only: proposals
    count as negatives of a class where the image is annotated exhaustively for it, see
    :mod:`mmrank.models.federated_annotations`::

        roi_head=dict(
            type='mmrank.FederatedRoIHead',
            head_type='mmdet.StandardRoIHead',
            bbox_head=dict(
                type='mmrank.ListwiseBBoxHead',
                head_type='mmdet.Shared2FCBBoxHead',
                loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')))

    The training set is a :class:`mmrank.LVISDataset`, and ``exhaustive_labels`` one of the
    ``meta_keys`` of ``PackDetInputs``. The RPN finds objects of any class and stays as it is.

    Args:
        head_type: The head: its class, or registered name with its scope, e.g.
            ``mmdet.StandardRoIHead`` or ``mmdet.CascadeRoIHead``.
        **kwargs: Arguments of the head; each ``bbox_head`` is a
            :func:`ListwiseBBoxHead`.
    """
    host = host_class('head_type', head_type, 'mmdet.StandardRoIHead')
    return FederatedRoIMixin.class_for(host)(**kwargs)
