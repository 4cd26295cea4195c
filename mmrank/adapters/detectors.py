"""Any supported detector of another library on a ranking loss."""

from importlib import import_module
from typing import TypeVar

from torch import nn

from mmrank.errors import UserError, UserTypeError
from mmrank.losses import HeadLoss, KeepsSampleState

from .class_part import RankingSettings, check_is_loss, ranking_parts

_Model = TypeVar('_Model', bound=nn.Module)

#: Served classes, with the module that serves them and those derived from them.
SERVED = {
    'RetinaNet': 'torchvision_detectors',
    'FCOS': 'torchvision_detectors',
    # and Mask and Keypoint R-CNN, which are derived from it
    'FasterRCNN': 'torchvision_rcnn',
    'RTDetrForObjectDetection': 'detection_transformers',
    'RTDetrV2ForObjectDetection': 'detection_transformers',
    'DFineForObjectDetection': 'detection_transformers',
    'Deimv2ForObjectDetection': 'detection_transformers',
    'ConditionalDetrForObjectDetection': 'detection_transformers',
    'DabDetrForObjectDetection': 'detection_transformers',
    'DeformableDetrForObjectDetection': 'detection_transformers',
    'LwDetrForObjectDetection': 'detection_transformers',
    'RfDetrForObjectDetection': 'detection_transformers',
    'RFDETRModelModule': 'rfdetr_module',
    # of Ultralytics
    'DetectionModel': 'ultralytics_detectors',
    # of LibreYOLO, lightly-train, and the config of clones such as DEIMv2
    'LibreYOLO9Model': 'libreyolo_detectors',
    'LTDETRObjectDetectionTrain': 'query_detectors',
    'DFINETrainer': 'query_detectors',
    'DEIMTrainer': 'query_detectors',
    'RTDETRTrainer': 'query_detectors',
    'YAMLConfig': 'query_detectors',
}


def use_ranking_loss(
    model: _Model, loss: HeadLoss, *, centre_scores: bool = True, balance_boxes: bool = False
) -> _Model:
    """Replace the classification loss of a detector by a ranking loss, in place.

    All scores of a batch form one ranking: the scores of all its images, and in distributed
    training, with ``scope='global'``, of all ranks. Everything else of the detector stays: its
    target assignment, box losses and interface. Call it before the model is wrapped for distributed
    training and before the optimiser is made::

        model = use_ranking_loss(retinanet_resnet50_fpn(), GradedAPLoss())

    What is ranked in which model is in a table of docs/pages/users/other_detectors.md. The layers
    of a DETR have a ranking each, see :class:`.query_criterion.QueryCriterion`.

    Choose checkpoints by the AP of the validation split, not by the ``eval_loss`` of a trainer: the
    value of a ranking loss says little.

    The state of the loss is part of the model: of ``state_dict()``, ``save_pretrained()`` and
    ``torch.save(model)``.

    Args:
        model: The detector.
        loss: A ranking loss of :mod:`mmrank.losses`, or a point-wise one to compare with, such as
            ``VarifocalLoss``. It is copied.
        centre_scores: In eval mode show the mean positive score as 0.5 instead of wherever training
            left it, so that score thresholds work. The ranking stays.
        balance_boxes: Multiply the box loss by the detached ratio of the classification loss to it
            (Rank & Sort, ICCV 2021, section 4). Only for torchvision's detectors.

    Raises:
        TypeError: If no adapter serves the model, or the loss is none of these.
        UserError: If the loss does not fit the model.
    """
    check_is_loss(loss)
    adapter = _adapter_of(model)
    ranking_parts(model, expected=False)
    adapter.attach(model, RankingSettings(loss, centre_scores, balance_boxes))
    return model


def remove_ranking_loss(model: _Model) -> _Model:
    """Give a detector its own classification loss back, in place.

    The centre of the scores that the ranking loss has learnt moves into the bias of the
    classification layer, so that in eval mode the model predicts the same as before and can be
    saved for users without mmrank.
    """
    _adapter_of(model)
    for part in ranking_parts(model):
        part.leave(model)
    return model


def check_fit(loss: HeadLoss, num_classes: int, box_inputs: tuple, model: str) -> None:
    """Raise ``UserError`` if a model of ``num_classes`` score columns cannot train on a loss.

    ``box_inputs`` are the values of ``box_input`` that its adapter can pass.
    """
    name = type(loss).__name__
    if loss.num_columns not in (None, num_classes):
        raise UserError(
            f'{name}(num_classes={loss.num_columns}) does not fit the model, which has '
            f'{num_classes} classes. Fix: {name}(num_classes={num_classes}), or leave it out'
        )
    if isinstance(loss, KeepsSampleState) and loss.keeps_samples:
        raise UserError(
            f'{name} keeps state for each sample of a data set, and the anchors or queries of a '
            'detector are not samples. Fix: use another loss, such as GradedAPLoss'
        )
    if loss.box_input not in box_inputs:
        raise UserError(
            f'{name} replaces the box loss (box_input={loss.box_input!r}), which {model} has for '
            'each query. Fix: use another loss, such as GradedAPLoss or StableAPLoss'
        )


def check_settings(settings: RankingSettings, num_classes: int, model: str) -> None:
    """As :func:`check_fit`, for models whose adapter passes IoUs and balances no box losses."""
    check_fit(settings.loss, num_classes, (None, 'quality'), model)
    if settings.balance_boxes:
        raise UserError(
            f'balance_boxes=True is not supported for {model}, whose box losses have weights of '
            'their own. Fix: remove it; set the weights of the box losses in the config'
        )


def _adapter_of(model: nn.Module):
    for base in type(model).__mro__:
        if base.__name__ in SERVED:
            return import_module(f'mmrank.adapters.{SERVED[base.__name__]}')
    raise UserTypeError(
        f'model={type(model).__name__} has no adapter. Fix: pass one of {", ".join(SERVED)}, '
        "before it is wrapped for distributed training or compiled; for mmdet's heads use "
        "type='mmrank.ListwiseHead'"
    )
