"""DETRs of transformers on a ranking loss."""

from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mmrank.errors import UserError
from mmrank.imports import required_package
from mmrank.losses import HeadLoss, IABCELoss, MALLoss, VarifocalLoss

from .class_part import (
    RankingPart,
    RankingSettings,
    check_objects,
    copies_of,
    keep_centred,
    ranking_parts,
    show_centred,
)
from .detectors import check_fit
from .query_criterion import LAST, QueryCriterion

with required_package(
    'transformers', 'The adapter of the DETRs of transformers', "pip install 'mmrank[adapters]'"
):
    from transformers import PreTrainedModel

PREFIX = '_loss_function.'


class _QueryVarifocal(QueryCriterion):
    """Mixin for the criterions of RT-DETR, D-FINE and DEIMv2, which weigh their losses themselves.

    The boxes of DEIMv2 may have more matches than its classes.
    """

    loss_name = 'loss_ranking'
    aux_mark = '_aux_'

    def __init__(self, config) -> None:
        super().__init__(config)
        weights = self.weight_dict
        self.loss_factor = weights['loss_mal' if 'loss_mal' in weights else 'loss_vfl']

    loss_labels_vfl = loss_labels_mal = QueryCriterion.loss_labels


def _ranked_criterion(mixin: type[QueryCriterion], file: str, name: str) -> type:
    return mixin.class_for(getattr(import_module(f'transformers.loss.{file}'), name))


class _DetectorLosses(RankingPart):
    """Takes the place of ``loss_function`` of a model.

    The functions of transformers make their criterion themselves, so this lays out the outputs of
    the layers for ours, which is derived from theirs. ``rankings`` has the loss of each layer, see
    :class:`.query_criterion.QueryCriterion`.
    """

    checking: RemovableHandle

    def __init__(self, losses: nn.ModuleDict) -> None:
        super().__init__()
        self.add_module('rankings', losses)

    def leave(self, model: nn.Module) -> None:
        keep_centred(model)
        del model._loss_function
        self.checking.remove()


class _RTDetrLosses(_DetectorLosses):
    """For RT-DETR, RT-DETRv2, D-FINE and DEIMv2; the last of ``aux_<i>`` are the proposals."""

    def __init__(self, loss: HeadLoss, config) -> None:
        """A loss for each layer of the decoder, for its denoising queries, and the proposals."""
        number = config.decoder_layers
        kinds = ('aux', 'dn')[: 2 if config.num_denoising else 1]
        names = [LAST, *(f'{kind}_{i}' for kind in kinds for i in range(number))]
        proposals = VarifocalLoss(scope=loss.scope)
        if hasattr(config, 'weight_loss_mal'):
            proposals = MALLoss(config.focal_loss_gamma, scope=loss.scope)
        super().__init__(copies_of(loss, names, {f'aux_{number - 1}': proposals}))

    def forward(
        self,
        logits: Tensor,
        labels: list[dict],
        device: torch.device,
        pred_boxes: Tensor,
        config,
        outputs_class: Tensor | None = None,
        outputs_coord: Tensor | None = None,
        enc_topk_logits: Tensor | None = None,
        enc_topk_bboxes: Tensor | None = None,
        denoising_meta_values: dict | None = None,
        predicted_corners: Tensor | None = None,
        initial_reference_points: Tensor | None = None,
        **kwargs,
    ) -> tuple[Tensor, dict[str, Tensor], list[dict] | None]:
        """Loss of a batch, its parts, and the outputs of the auxiliary layers.

        See the functions in ``transformers.loss`` for the arguments. (B, L, Q, ...) outputs of
        L layers begin with the denoising queries.
        """
        fine = hasattr(config, 'weight_loss_fgl')
        names = ('loss_d_fine', 'DFineLoss') if fine else ('loss_rt_detr', 'RTDetrLoss')
        if hasattr(config, 'weight_loss_mal'):
            names = ('loss_deimv2', 'Deimv2Loss')
        criterion = _ranked_criterion(_QueryVarifocal, *names)(config)
        criterion.rankings = self.rankings
        # The boxes of D-FINE and DEIMv2 may lie outside.
        inside = (lambda boxes: boxes.clamp(0, 1)) if fine else (lambda boxes: boxes)
        # In the last layer the box losses, too, leave out the denoising queries, which have losses
        # of their own: transformers < 5 matches them there with the objects that they were made
        # from (fixed by its pull request 48528).
        queries = slice(-config.num_queries, None)
        outputs: dict = dict(logits=logits[:, queries], pred_boxes=inside(pred_boxes[:, queries]))
        auxiliary = None
        if config.auxiliary_loss:
            layers = [outputs_class, inside(outputs_coord)]
            if fine:
                layers += [predicted_corners, initial_reference_points]
            if denoising_meta_values is not None:
                sizes = denoising_meta_values['dn_num_split']
                denoising, layers = zip(*(x.split(sizes, dim=2) for x in layers))
                outputs['dn_auxiliary_outputs'] = _layers(*denoising)
                outputs['denoising_meta_values'] = denoising_meta_values
            proposals = dict(logits=enc_topk_logits, pred_boxes=inside(enc_topk_bboxes))
            *first, last = _layers(*layers)
            # The last layer has losses of D-FINE's distributions, too, as its authors have it.
            # transformers trains it by boxes alone: the distributions run into one bin.
            outputs = {**last, **outputs}
            auxiliary = outputs['auxiliary_outputs'] = [*first, proposals]
        losses = criterion.to(device)(outputs, labels)
        return cast(Tensor, sum(losses.values())), losses, auxiliary


class _DeformableDetrLosses(_DetectorLosses):
    """For Conditional DETR, DAB-DETR, Deformable DETR, LW-DETR and RF-DETR.

    The last two train several groups of queries: all groups of a layer together are one ranking.
    """

    def __init__(self, loss: HeadLoss, config) -> None:
        """A loss for each layer of the decoder, and for the proposals where they are trained."""
        names = [LAST, *(f'aux_{i}' for i in range(config.decoder_layers - 1))]
        grouped = hasattr(config, 'group_detr')
        proposals = IABCELoss(config.focal_alpha, scope=loss.scope)
        super().__init__(copies_of(loss, names, {'enc': proposals} if grouped else {}))

    def forward(
        self,
        logits: Tensor,
        labels: list[dict],
        device: torch.device,
        pred_boxes: Tensor,
        config,
        outputs_class: Tensor | None = None,
        outputs_coord: Tensor | None = None,
        enc_outputs_class: Tensor | None = None,
        enc_outputs_coord: Tensor | None = None,
        **kwargs,
    ) -> tuple[Tensor, dict[str, Tensor], list[dict] | None]:
        """Loss of a batch, its parts, and the outputs of the auxiliary layers.

        (L, B, Q, ...) outputs of L layers.
        """
        grouped = enc_outputs_class is not None
        file, kind = ('lw_detr', 'LwDetr') if grouped else ('deformable_detr', 'DeformableDetr')
        file = f'loss_{file}'
        matcher = getattr(import_module(f'transformers.loss.{file}'), f'{kind}HungarianMatcher')
        criterion = _ranked_criterion(QueryCriterion, file, f'{kind}ImageLoss')(
            matcher(config.class_cost, config.bbox_cost, config.giou_cost),
            config.num_labels,
            config.focal_alpha,
            ['labels', 'boxes', 'cardinality'],
            **(dict(group_detr=config.group_detr) if grouped else {}),
        )
        criterion.rankings = self.rankings
        outputs: dict = dict(logits=logits, pred_boxes=pred_boxes)
        auxiliary = None
        if grouped:
            outputs['enc_outputs'] = dict(logits=enc_outputs_class, pred_boxes=enc_outputs_coord)
        if config.auxiliary_loss and outputs_class is not None and outputs_coord is not None:
            layers = zip(outputs_class[:-1], outputs_coord[:-1])
            auxiliary = [dict(logits=x, pred_boxes=y) for x, y in layers]
            outputs['auxiliary_outputs'] = auxiliary
        # In eval mode there is one group.
        losses = criterion.to(device).train(self.training)(outputs, labels)
        factors = {
            'ce': getattr(config, 'class_loss_coefficient', 1),
            'bbox': config.bbox_loss_coefficient,
            'giou': config.giou_loss_coefficient,
        }
        total = sum(
            factors[name.split('_')[1]] * loss
            for name, loss in losses.items()
            if name.startswith('loss_')
        )
        return cast(Tensor, total), losses, auxiliary


def _layers(
    logits: Tensor, boxes: Tensor, corners: Tensor | None = None, points: Tensor | None = None
) -> list[dict]:
    """Outputs of each layer, in the form of transformers' criterions."""
    layers = []
    # D-FINE has logits, but no corners, of its first boxes, too.
    for i in range(logits.size(1) if corners is None else corners.size(1)):
        layers.append(dict(logits=logits[:, i], pred_boxes=boxes[:, i]))
        if corners is not None and points is not None:
            layers[i].update(
                pred_corners=corners[:, i],
                ref_points=points[:, i],
                teacher_corners=corners[:, -1],
                teacher_logits=logits[:, -1],
            )
    return layers


def _check_objects(model: PreTrainedModel, args: tuple, settings: dict) -> None:
    """Forward pre-hook: refuse labels and boxes of the objects that are none of this model."""
    labels = settings.get('labels') or ()
    classes = [x['class_labels'] for x in labels]
    boxes = [x['boxes'] for x in labels]
    check_objects(classes, boxes, model.config.num_labels, 'num_labels')


def attach(model: PreTrainedModel, settings: RankingSettings) -> None:
    """Replace the ``loss_function`` of a model by the ranking losses."""
    name = type(model).__name__
    config = model.config
    check_fit(settings, config.num_labels, name)
    if getattr(config, 'mal_alpha', None) is not None:
        raise UserError(
            f'mal_alpha={config.mal_alpha!r} weighs the negatives of the proposals. The loss that '
            f'they keep in {name} has no such weight. Fix: mal_alpha=None, the default'
        )
    made = _RTDetrLosses if hasattr(config, 'weight_loss_vfl') else _DeformableDetrLosses
    criterion = made(settings.loss, config)
    criterion.to(model.device).train(model.training)
    # What model.loss_function = criterion calls; torch would hide a module behind the property.
    type(model).loss_function.__set__(model, criterion)
    if settings.centre_scores:
        show_centred(_score_layer(model), criterion.rankings[LAST])
    criterion.checking = model.register_forward_pre_hook(_check_objects, with_kwargs=True)


def _score_layer(model: PreTrainedModel) -> nn.Module:
    """What computes the scores that the model predicts."""
    # RT-DETRv2 has a copy of the decoder's, with the same weights.
    heads = getattr(model.get_submodule('model.decoder'), 'class_embed', None)
    if heads is None:
        heads = getattr(model, 'class_labels_classifier', None)
    if heads is None:
        heads = model.get_submodule('class_embed')
    if isinstance(heads, nn.ModuleList):
        # D-FINE may predict by another layer than the last; Deformable DETR's heads may end with
        # the encoder's.
        heads = heads[getattr(model, 'eval_idx', model.config.decoder_layers - 1)]
    return heads


def load_ranking_state(model: nn.Module, folder: str | PathLike) -> nn.Module:
    """Load the state of the losses that ``save_pretrained`` wrote; ``from_pretrained`` leaves it.

    To train on::

        model = RTDetrForObjectDetection.from_pretrained(folder)
        model = use_ranking_loss(model, StableAPLoss())
        model = load_ranking_state(model, folder)
    """
    from safetensors.torch import load_file

    (criterion,) = ranking_parts(model)
    state = {
        key.removeprefix(PREFIX): value
        for file in sorted(Path(folder).glob('*.safetensors'))
        for key, value in load_file(file).items()
        if key.startswith(PREFIX)
    }
    try:
        criterion.load_state_dict(state)
    except RuntimeError as error:
        what = f'{folder}: the saved state belongs to another ranking loss'
        fix = f'use_ranking_loss with the loss and settings of the training. {error}'
        raise UserError(what, fix) from error
    return model
