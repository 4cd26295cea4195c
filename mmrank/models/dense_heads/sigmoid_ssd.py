"""SSD with one sigmoid a class in place of a softmax with a background."""

from torch import Tensor

from mmrank.registry import MODELS


class SigmoidSSD:
    """Put between ``ListwiseMixin`` and SSD: gives it losses to call.

    SSD computes its losses itself, the classification over the positives and three times as many
    negatives, which a softmax with a background finds. A ranking takes all anchors and has no
    background.

    Args:
        loss_cls: Config of the classification loss.
        loss_bbox: Config of the box loss; None: the smooth L1 loss of SSD, with
            ``train_cfg.smoothl1_beta``.
    """

    def __init__(self, *args, loss_cls: dict, loss_bbox: dict | None = None, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.use_sigmoid_cls = True
        self.loss_cls = MODELS.build(loss_cls)
        if loss_bbox is None:
            beta = (self.train_cfg or {}).get('smoothl1_beta', 1.0)
            loss_bbox = dict(type='mmdet.SmoothL1Loss', beta=beta)
        self.loss_bbox = MODELS.build(loss_bbox)

    def _init_layers(self) -> None:
        self.cls_out_channels = self.num_classes
        super()._init_layers()

    def loss_by_feat_single(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor,
        anchor: Tensor,
        labels: Tensor,
        label_weights: Tensor,
        bbox_targets: Tensor,
        bbox_weights: Tensor,
        avg_factor: float,
    ) -> tuple[Tensor, Tensor]:
        """Losses of one image.

        Args:
            cls_score: (n, C) raw scores of its anchors.
            bbox_pred: (n, 4) outputs of the box branch.
            anchor: (n, 4) anchors.
            labels: (n,) class indices, C = background.
            label_weights: (n,) weights of the classification.
            bbox_targets: (n, 4) targets of the boxes.
            bbox_weights: (n, 4) weights of the boxes.
            avg_factor: Normaliser of the batch.

        Returns:
            Classification and box loss, scalars.
        """
        loss_cls = self.loss_cls(cls_score, labels, label_weights, avg_factor=avg_factor)
        if self.reg_decoded_bbox:
            bbox_pred = self.bbox_coder.decode(anchor, bbox_pred)
        loss_bbox = self.loss_bbox(bbox_pred, bbox_targets, bbox_weights, avg_factor=avg_factor)
        return loss_cls, loss_bbox
