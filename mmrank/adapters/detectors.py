"""Any supported detector of another library on a ranking loss."""

from importlib import import_module
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from mmrank.errors import UserError, UserTypeError
from mmrank.imports import required_package
from mmrank.losses import HeadLoss, KeepsSampleState

from .class_part import (
    RankingSettings,
    centre_of_channels,
    centred_layers,
    check_is_loss,
    ranking_parts,
)

_Model = TypeVar('_Model', bound=nn.Module)

_TRANSFORMERS = ('RTDetr', 'RTDetrV2', 'DFine', 'Deimv2', 'ConditionalDetr', 'DabDetr')
_TRANSFORMERS += ('DeformableDetr', 'LwDetr', 'RfDetr')
#: Served classes, with the module that serves them and those derived from them.
SERVED = {
    'RetinaNet': 'torchvision_detectors',
    'FCOS': 'torchvision_detectors',
    # and Mask and Keypoint R-CNN, which are derived from it
    'FasterRCNN': 'torchvision_rcnn',
    **{f'{x}ForObjectDetection': 'detection_transformers' for x in _TRANSFORMERS},
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

    docs/pages/users/other_detectors.md has a table of what is ranked in which model, and how to
    choose checkpoints. The state of the loss is part of the model: of ``state_dict()``,
    ``save_pretrained()`` and ``torch.save(model)``.

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
    served = [SERVED[x.__name__] for x in type(model).__mro__ if x.__name__ in SERVED]
    if not served:
        raise UserTypeError(
            f'model={type(model).__name__} has no adapter. Fix: pass one of {", ".join(SERVED)}, '
            "before it is wrapped for distributed training or compiled; for mmdet's heads use "
            "type='mmrank.ListwiseHead'"
        )
    ranking_parts(model, expected=False)
    adapter = import_module(f'mmrank.adapters.{served[0]}')
    adapter.attach(model, RankingSettings(loss, centre_scores, balance_boxes))
    return model


def remove_ranking_loss(model: _Model) -> _Model:
    """Give a detector its own classification loss back, in place.

    The centre of the scores that the ranking loss has learnt moves into the bias of the
    classification layer, so that in eval mode the model predicts the same as before and can be
    saved for users without mmrank. What holds the model will do, too, such as a ``YOLO``.
    """
    for part in ranking_parts(model):
        part.leave(model)
    return model


@torch.no_grad()
def show_probabilities(model: nn.Module, scores: Tensor, hits: Tensor) -> None:
    """Let a detector show how often its boxes are right, so that ``conf=0.7`` means that.

    One rising map of all scores, ``p = sigmoid(a logit(s) + b)`` (Platt, 1999), moves into the
    weights of the layers that score the classes: the order stays, and exports have it, too. Call it
    once after the training, before :func:`remove_ranking_loss`.

    Args:
        model: A detector of :func:`use_ranking_loss`.
        scores: (n,) what it shows for boxes of validation images, low ones too, in [0, 1].
        hits: (n,) whether each box is right: bool, or 0 and 1.

    Raises:
        UserError: If a score is no probability, no box or each one is right, or the model shows
            more than the scores of one layer.
    """
    with required_package('sklearn', 'show_probabilities', 'pip install scikit-learn'):
        from sklearn.linear_model import LogisticRegression
    ranking_parts(model)  # refuses a model without a ranking loss
    layers = centred_layers(model)
    if not layers or any(hasattr(x, 'bbox_ctrness') for x in model.modules()):
        what = f'{type(model).__name__} has no centred scores, or shows more than the scores of a '
        raise UserError(what + 'layer', 'tools/analysis_tools/calibrate.py')
    right = int((hits > 0).sum())
    if scores.dim() != 1 or scores.shape != hits.shape or not 0 < right < len(hits):
        what = f'scores of shape {tuple(scores.shape)} and hits of shape {tuple(hits.shape)}, of '
        raise UserError(f'{what}which {right} are right', '(n,) of each, some right and some not')
    if not ((scores >= 0) & (scores <= 1)).all():
        what = f'scores reach from {scores.min():.4g} to {scores.max():.4g}'
        raise UserError(what, 'what the model shows, from 0 to 1: of logits logits.sigmoid()')
    logits = scores.double().clamp(1e-6, 1 - 1e-6).logit().cpu()
    # Without a penalty, which would pull a few boxes to the middle.
    model_of_hits = LogisticRegression(C=1e6)
    fitted = model_of_hits.fit(logits[:, None].numpy(), (hits > 0).cpu().numpy())
    factor = float(fitted.coef_[0, 0])
    if factor <= 0:
        raise UserError('the scores fall with the hits', 'scores and hits of the same boxes')
    for layer, _, ranking in layers:
        centre = centre_of_channels(ranking, layer.bias)
        layer.weight *= factor
        layer.bias.copy_((layer.bias - centre) * factor + float(fitted.intercept_[0]) + centre)
    # D-FINE adds a layer of the boxes to the scores.
    for module in model.modules():
        if hasattr(module, 'reg_conf'):
            layers_of_boxes = cast(nn.ModuleList, module.get_submodule('reg_conf.layers'))
            for parameter in layers_of_boxes[-1].parameters():
                parameter *= factor


def check_fit(
    settings: RankingSettings,
    num_classes: int,
    model: str,
    box_inputs: tuple = (None, 'quality'),
    balances: bool = False,
) -> None:
    """Raise ``UserError`` if a model of so many classes, and its adapter, cannot train so."""
    loss = settings.loss
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
    if settings.balance_boxes and not balances:
        raise UserError(
            f'balance_boxes=True is not supported for {model}, whose box losses have weights of '
            'their own. Fix: remove it; set the weights of the box losses in the config'
        )
