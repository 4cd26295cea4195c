"""Any mmdet dense head on a loss that ranks all levels and images at once."""

from mmrank.losses.registered import box_loss
from mmrank.made_class import host_class
from mmrank.registry import MODELS

from .adapted_hosts import JointPredictions, JointTargets
from .host_heads import derives_from, traits_of
from .listwise_detr_mixin import ListwiseDETRMixin
from .listwise_mixin import ListwiseMixin


@MODELS.register_module()
def ListwiseHead(
    head_type: str | type,
    *,
    loss_cls: dict,
    centre_scores: bool = True,
    balance_boxes: bool = False,
    num_layers: int | None = None,
    federated: bool = False,
    **kwargs,
):
    """Build a dense head of mmdet that trains on a listwise loss.

    In a config, keep the stock head and add two lines::

        bbox_head=dict(
            type='mmrank.ListwiseHead',
            head_type='mmdet.ATSSHead',
            loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss'))

    A head of the DETR family ranks all queries of all images, each decoder layer by itself, and the
    denoising queries apart from those that predict. Some heads give up a part of their own: VFNet
    its IoU-aware targets (``use_vfl``), TOOD its ``initial_loss_cls``, and YOLOX its ``loss_obj``,
    since there the product of class and objectness is ranked over all points.

    Args:
        head_type: The head: its class, or registered name with its scope, e.g.
            ``mmdet.RetinaHead``, ``mmdet.ATSSHead``, ``mmdet.RTMDetHead``: any head whose
            ``loss_by_feat`` calls ``self.loss_cls`` on (n, C) scores and class indices.
            docs/pages/users/detector.md lists mmdet's.
        loss_cls: Config of the loss. ``num_classes`` is filled in where the loss takes it and the
            config does not set it. A loss that takes IoUs (Rank & Sort) gets them of box codes,
            too; one that computes the box loss (aLRP) needs an IoU loss on decoded boxes.
        centre_scores: At test time show the mean positive score as 0.5 instead of wherever training
            left it. The ranking of a class stays.
        balance_boxes: Multiply the box loss by the detached ratio of the classification loss to it
            (Rank & Sort, ICCV 2021, section 4).
        num_layers: For DETRHead, ConditionalDETRHead and DABDETRHead: number of decoder layers if
            it is not 6. Other heads take no such argument, or know it.
        federated: For data sets such as LVIS, whose images are annotated for some of the classes
            only: scores of a class count as negatives where the image is annotated exhaustively for
            it, see :mod:`mmrank.models.federated_annotations`. The training set is a
            :class:`mmrank.LVISDataset`, and ``exhaustive_labels`` one of the ``meta_keys`` of
            ``PackDetInputs``.
        **kwargs: Arguments of the head.
    """
    host = host_class('head_type', head_type, 'mmdet.RetinaHead')
    traits_of(host)
    loss_cls = box_loss('loss_cls', loss_cls, kwargs.get('num_classes'))
    if derives_from(host, 'VFNetHead'):
        # With use_vfl=True it passes IoUs in place of labels; without, the loss has another name.
        kwargs.update(use_vfl=False, loss_cls_fl=loss_cls)
    if num_layers is not None:
        kwargs['num_layers'] = num_layers
    if derives_from(host, 'DETRHead'):
        made = ListwiseDETRMixin.class_for(host)
    elif derives_from(host, 'YOLOXHead'):
        made = ListwiseMixin.class_for(host, (JointPredictions,), (JointTargets,))
    else:
        made = ListwiseMixin.class_for(host)
    kwargs.update(centre_scores=centre_scores, balance_boxes=balance_boxes, federated=federated)
    return made(loss_cls=loss_cls, **kwargs)
