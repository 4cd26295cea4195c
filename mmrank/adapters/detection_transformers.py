"""RT-DETR, RT-DETRv2 and D-FINE of transformers on a ranking loss."""

import copy
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from mmrank.distributed import world_group
from mmrank.errors import UserError
from mmrank.losses import RankingLoss, VarifocalLoss
from mmrank.losses.quality_losses import QualityLoss
from mmrank.required_package import required_package

from .detectors import centre_of, check_fit, check_ranks

with required_package(
    'transformers', 'The adapter of RT-DETR and D-FINE', "pip install 'mmrank[adapters]'"
):
    from transformers.image_transforms import center_to_corners_format
    from transformers.loss.loss_d_fine import DFineLoss
    from transformers.loss.loss_for_object_detection import box_iou
    from transformers.loss.loss_rt_detr import RTDetrLoss

#: The last decoder layer, whose scores the model predicts.
LAST = 'last'
PREFIX = '_loss_function.'


class RankedLabels:
    """Mixin for criterions: ranks in place of the varifocal loss, each layer by its own loss.

    Matching and box losses stay those of the criterion. It expects the name of each layer as
    ``layer`` in its outputs.
    """

    def __init__(self, config, rankings: nn.ModuleDict) -> None:
        super().__init__(config)
        self.rankings = rankings
        self.ranked: set[str] = set()
        self.weight_dict['loss_ranking'] = self.weight_dict.pop('loss_vfl')

    def forward(self, outputs: dict, targets: list[dict]) -> dict[str, Tensor]:
        """Losses of all layers; the names are those of the criterion."""
        losses = super().forward(outputs, targets)
        if world_group() is not None:
            # A rank without boxes has no denoising queries. The others wait for it to take part in
            # their rankings.
            logits = outputs['logits']
            empty = logits.new_zeros(0, logits.size(-1)), logits.new_zeros(0, dtype=torch.long)
            for name in self.rankings:
                if name not in self.ranked:
                    self._rank(name, *empty, logits.new_zeros(0))
        return losses

    def loss_labels_vfl(
        self, outputs: dict, targets: list[dict], indices: list, num_boxes: float, log: bool = True
    ) -> dict[str, Tensor]:
        """Scalar ``loss_ranking`` of one layer: all queries of all images together.

        ``outputs`` has ``logits`` (B, Q, C) and ``pred_boxes`` (B, Q, 4), ``targets`` the
        ``class_labels`` and ``boxes`` of each image, and ``indices`` its matched queries and
        objects. A ranking has its own normalisation: ``num_boxes`` is not used.
        """
        logits, rows = outputs['logits'], self._get_source_permutation_idx(indices)
        classes, boxes = (
            torch.cat([t[key][j] for t, (_, j) in zip(targets, indices)])
            for key in ('class_labels', 'boxes')
        )
        labels = torch.full(logits.shape[:2], logits.size(-1), device=logits.device)
        labels[rows] = classes
        with torch.no_grad():
            ious, _ = box_iou(
                center_to_corners_format(outputs['pred_boxes'][rows].float()),
                center_to_corners_format(boxes.float()),
            )
        quality = torch.zeros(logits.shape[:2], device=logits.device)
        quality[rows] = ious.diag()
        # Of the matched queries, in the order of the rows.
        quality = quality[labels < logits.size(-1)]
        loss = self._rank(outputs['layer'], logits.flatten(0, 1), labels.flatten(), quality)
        return dict(loss_ranking=loss)

    def _rank(self, name: str, logits: Tensor, labels: Tensor, quality: Tensor) -> Tensor:
        self.ranked.add(name)
        ranking = self.rankings[name]
        boxes = {} if ranking.box_input is None else {'quality': quality}
        # The factor says that C is the background, also of one class.
        return ranking(logits, labels, avg_factor=1, **boxes)


class RTDetrRankedLabels(RankedLabels, RTDetrLoss):
    """Criterion of RT-DETR on ranking losses."""


class DFineRankedLabels(RankedLabels, DFineLoss):
    """Criterion of D-FINE on ranking losses."""


class RankingCriterion(nn.Module):
    """Takes the place of ``loss_function`` of a model.

    The functions of transformers make their criterion themselves, so this lays out the outputs of
    the layers for ours. Each of the ``rankings`` gets a copy of the loss with its own state: the
    scores of a decoder layer have another level and spread than those of the next. ``last`` is the
    last decoder layer, ``aux_<i>`` are the layers before it and, as the last of these, the
    encoder's proposals, ``dn_<i>`` the denoising queries of each layer. ``fine``: the model is
    D-FINE, whose boxes are distributions of corners.

    The encoder's proposals keep the varifocal loss: a ranking of them costs half of the mAP
    (docs/pages/results/detr.md).
    """

    def __init__(self, loss: RankingLoss, num_layers: int, centre_scores: bool, fine: bool) -> None:
        super().__init__()
        self.centre_scores, self.fine = centre_scores, fine
        names = [LAST, *(f'{k}_{i}' for k in ('aux', 'dn') for i in range(num_layers))]
        self.rankings = nn.ModuleDict({name: copy.deepcopy(loss) for name in names})
        if not isinstance(loss, QualityLoss):
            self.rankings[f'aux_{num_layers - 1}'] = VarifocalLoss(scope=loss.scope)

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

        The arguments are those of the functions in ``transformers.loss``. (B, L, Q, ...) outputs of
        L layers begin with the denoising queries.
        """
        criterion = (DFineRankedLabels if self.fine else RTDetrRankedLabels)(config, self.rankings)
        # In the last layer the box losses, too, leave out the denoising queries, which have losses
        # of their own: transformers < 5 matches them there with the objects that they were made
        # from (fixed by its pull request 48528).
        queries = slice(-config.num_queries, None)
        outputs = dict(logits=logits[:, queries], layer=LAST)
        outputs['pred_boxes'] = self._inside(pred_boxes[:, queries])
        auxiliary = None
        # As in transformers: D-FINE has further losses only where there are denoising queries.
        if config.auxiliary_loss and not (self.fine and denoising_meta_values is None):
            layers = [outputs_class, self._inside(outputs_coord)]
            if self.fine:
                layers += [predicted_corners, initial_reference_points]
            if denoising_meta_values is not None:
                sizes = denoising_meta_values['dn_num_split']
                denoising, layers = zip(*(x.split(sizes, dim=2) for x in layers))
                outputs['dn_auxiliary_outputs'] = _layers('dn', *denoising)
                outputs['denoising_meta_values'] = denoising_meta_values
            proposals = dict(logits=enc_topk_logits, pred_boxes=self._inside(enc_topk_bboxes))
            auxiliary = _layers('aux', *layers)[:-1]
            auxiliary.append({**proposals, 'layer': f'aux_{len(auxiliary)}'})
            outputs['auxiliary_outputs'] = auxiliary
        losses = criterion.to(device)(outputs, labels)
        return sum(losses.values()), losses, auxiliary

    def _inside(self, boxes: Tensor) -> Tensor:
        return boxes.clamp(0, 1) if self.fine else boxes


def _layers(
    kind: str, logits: Tensor, boxes: Tensor, corners: Tensor | None = None, points=None
) -> list[dict]:
    """Outputs of each layer, in the form of transformers' criterions."""
    layers = []
    # D-FINE has logits, but no corners, of its first boxes, too.
    for i in range(logits.size(1) if corners is None else corners.size(1)):
        layers.append(dict(logits=logits[:, i], pred_boxes=boxes[:, i], layer=f'{kind}_{i}'))
        if corners is not None:
            layers[i].update(
                pred_corners=corners[:, i],
                ref_points=points[:, i],
                teacher_corners=corners[:, -1],
                teacher_logits=logits[:, -1],
            )
    return layers


def show_centred(model: nn.Module, args: tuple, outputs):
    """Forward hook: in eval mode ``logits`` with the mean positive at 0."""
    criterion = model._loss_function
    if model.training or not criterion.centre_scores:
        return outputs
    loss = criterion.rankings[LAST]
    if hasattr(outputs, 'logits'):
        outputs.logits = outputs.logits - centre_of(loss, outputs.logits)
        return outputs
    # A tuple: (logits, ...), or (loss, losses by name, logits, ...).
    at = 2 if isinstance(outputs[1], dict) else 0
    logits = outputs[at] - centre_of(loss, outputs[at])
    return (*outputs[:at], logits, *outputs[at + 1 :])


def attach(model: nn.Module, loss: RankingLoss, centre_scores: bool, balance_boxes: bool) -> None:
    """Put the ranking losses into a model, see :func:`mmrank.adapters.use_ranking_loss`."""
    check_ranks(model, isinstance(model.loss_function, RankingCriterion), False)
    name, config = type(model).__name__, model.config
    if balance_boxes:
        raise UserError(
            f'balance_boxes=True is not supported for {name}, whose layers have box losses of '
            'their own weights. Fix: remove it; set config.weight_loss_bbox and '
            'config.weight_loss_giou'
        )
    check_fit(loss, config.num_labels, (None, 'quality'), name)
    fine = any(base.__name__.startswith('DFine') for base in type(model).__mro__)
    criterion = RankingCriterion(loss, config.decoder_layers, centre_scores, fine)
    # Not loss_function=..., which would hide a module behind the property.
    model._loss_function = criterion.to(model.device).train(model.training)
    model.register_forward_hook(show_centred)


def detach(model: nn.Module) -> None:
    """Undo :func:`attach`; the centre moves into the bias of the scores."""
    criterion = model.loss_function
    check_ranks(model, isinstance(criterion, RankingCriterion), True)
    if criterion.centre_scores:
        # D-FINE may predict by another layer than the last.
        bias = model.class_embed[getattr(model, 'eval_idx', -1)].bias
        with torch.no_grad():
            bias -= centre_of(criterion.rankings[LAST], bias.detach())
    del model._loss_function
    for key, hook in list(model._forward_hooks.items()):
        if hook is show_centred:
            del model._forward_hooks[key]


def load_ranking_state(model: nn.Module, folder: str | PathLike) -> nn.Module:
    """Load the state of the ranking losses that ``save_pretrained`` wrote into ``folder``.

    ``from_pretrained`` builds the model of transformers, which does not know them, and warns that
    they were not used. To train on::

        model = RTDetrForObjectDetection.from_pretrained(folder)
        model = use_ranking_loss(model, StableAPLoss())
        model = load_ranking_state(model, folder)

    A ``UserError`` says if there is no such state, or it is that of another loss.
    """
    from safetensors.torch import load_file

    criterion = model.loss_function
    check_ranks(model, isinstance(criterion, RankingCriterion), True)
    state = {
        key.removeprefix(PREFIX): value
        for file in sorted(Path(folder).glob('*.safetensors'))
        for key, value in load_file(file).items()
        if key.startswith(PREFIX)
    }
    try:
        criterion.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(
            f'{folder}: the saved state is not that of this ranking loss. Fix: use_ranking_loss '
            f'with the loss and settings of the training. {error}'
        ) from error
    return model
