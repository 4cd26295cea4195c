"""RT-DETR, RT-DETRv2 and D-FINE of transformers on a ranking loss."""

import copy
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import FunctionType

import torch
from torch import Tensor, nn

from mmrank.distributed import world_group
from mmrank.errors import UserError
from mmrank.losses import RankingLoss
from mmrank.required_package import required_package

from .detectors import already_ranks, centre_of, check_fit, without_ranking_loss

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
    """Put before a criterion: ranks in place of the varifocal loss.

    Matching and box losses stay those of the criterion. But in the last layer they, too, leave out
    the denoising queries, which have losses of their own.

    Args:
        config: Config of the model.
        rankings: A loss for each layer, by name.
    """

    def __init__(self, config, rankings: nn.ModuleDict) -> None:
        super().__init__(config)
        self.rankings, self.num_queries = rankings, config.num_queries
        self.ranked: set[str] = set()
        weights = {**self.weight_dict}
        weights['loss_ranking'] = weights.pop('loss_vfl')
        self.weight_dict = weights

    def forward(self, outputs: dict, targets: list[dict]) -> dict[str, Tensor]:
        """Losses of all layers; the names are those of the criterion."""
        # transformers < 5 leaves the denoising queries in the last layer, and there alone matches
        # them with the objects they were made from (fixed by its pull request 48528). They come
        # first.
        for key in ('logits', 'pred_boxes'):
            outputs[key] = outputs[key][:, -self.num_queries :]
        outputs['layer'] = LAST
        for kind, layers in (
            ('aux', outputs.get('auxiliary_outputs')),
            ('dn', outputs.get('dn_auxiliary_outputs')),
        ):
            for i, layer in enumerate(layers or ()):
                layer['layer'] = f'{kind}_{i}'
        losses = super().forward(outputs, targets)
        if world_group() is not None:
            # A rank without boxes has no denoising queries. The others wait for it to take part in
            # their rankings.
            logits = outputs['logits']
            for name, ranking in self.rankings.items():
                if name not in self.ranked:
                    self._rank(
                        ranking,
                        logits.new_zeros(0, logits.size(-1)),
                        torch.zeros_like(logits[0, :0, 0], dtype=torch.long),
                        logits.new_zeros(0),
                    )
        return losses

    def loss_labels_vfl(
        self, outputs: dict, targets: list[dict], indices: list, num_boxes: float, log: bool = True
    ) -> dict[str, Tensor]:
        """Ranking loss of one layer: all queries of all images together.

        Args:
            outputs: ``logits`` (B, Q, C) and ``pred_boxes`` (B, Q, 4).
            targets: ``class_labels`` and ``boxes`` of each image.
            indices: Matched queries and objects of each image.
            num_boxes: Not used: a ranking has its own normalisation.
            log: Not used.

        Returns:
            Scalar ``loss_ranking``.
        """
        logits, rows = (outputs['logits'], self._get_source_permutation_idx(indices))
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
        name = outputs['layer']
        self.ranked.add(name)
        flat = labels.flatten()
        loss = self._rank(
            self.rankings[name],
            logits.flatten(0, 1),
            flat,
            # Of the matched queries, in the order of the rows.
            quality.flatten()[flat < logits.size(-1)],
        )
        return dict(loss_ranking=loss)

    @staticmethod
    def _rank(ranking: RankingLoss, logits: Tensor, labels: Tensor, quality: Tensor) -> Tensor:
        if ranking.box_input is None:
            return ranking(logits, labels)
        return ranking(logits, labels, quality=quality)


class RTDetrRankedLabels(RankedLabels, RTDetrLoss):
    """Criterion of RT-DETR on ranking losses."""


class DFineRankedLabels(RankedLabels, DFineLoss):
    """Criterion of D-FINE on ranking losses."""


class RankingCriterion(nn.Module):
    """Takes the place of ``loss_function`` of a model.

    Args:
        stock: That function: it lays out the outputs of the layers and calls its criterion on them.
        loss: The ranking loss. Each ranking gets a copy with its own state: the scores of a decoder
            layer have another level and spread than those of the next.
        num_layers: Number of decoder layers.
        centre_scores: See :func:`mmrank.adapters.use_ranking_loss`.

    Attributes:
        rankings: ``last``: the last decoder layer. ``aux_<i>``: the layers before it and, as the
            last of these, the encoder's proposals. ``dn_<i>``: the denoising queries of each layer.
    """

    def __init__(
        self, stock: Callable, loss: RankingLoss, num_layers: int, centre_scores: bool
    ) -> None:
        super().__init__()
        self.stock, self.centre_scores = stock, centre_scores
        layers = range(num_layers)
        names = [LAST, *(f'{k}_{i}' for k in ('aux', 'dn') for i in layers)]
        self.rankings = nn.ModuleDict({name: copy.deepcopy(loss) for name in names})

    def forward(self, *args, **kwargs) -> tuple:
        """What the function of transformers returns, with ranking losses."""

        def criterion(base: type) -> Callable:
            return lambda config: base(config, self.rankings)

        # The function makes its criterion itself. This is the function with the same code, for
        # which the name of the criterion means ours.
        names = dict(
            self.stock.__globals__,
            RTDetrLoss=criterion(RTDetrRankedLabels),
            DFineLoss=criterion(DFineRankedLabels),
        )
        return FunctionType(
            self.stock.__code__,
            names,
            self.stock.__name__,
            self.stock.__defaults__,
            self.stock.__closure__,
        )(*args, **kwargs)


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
    """Put the ranking losses into a model.

    Args:
        model: Of transformers, for object detection.
        loss: The ranking loss.
        centre_scores: See :func:`mmrank.adapters.use_ranking_loss`.
        balance_boxes: Must be False.

    Raises:
        UserError: If the loss does not fit, or there is one already.
    """
    if isinstance(model.loss_function, RankingCriterion):
        raise already_ranks(model)
    name, config = type(model).__name__, model.config
    if balance_boxes:
        raise UserError(
            f'balance_boxes=True is not supported for {name}, whose layers '
            'have box losses of their own weights. Fix: remove it; set '
            'config.weight_loss_bbox and config.weight_loss_giou'
        )
    check_fit(loss, config.num_labels, (None, 'quality'), name)
    criterion = RankingCriterion(model.loss_function, loss, config.decoder_layers, centre_scores)
    # Not loss_function=..., which would hide a module behind the property.
    model._loss_function = criterion.to(model.device).train(model.training)
    model.register_forward_hook(show_centred)


def detach(model: nn.Module) -> None:
    """Undo :func:`attach`; the centre goes into the bias of the scores.

    Args:
        model: The model.

    Raises:
        UserError: If it has no ranking loss.
    """
    criterion = model.loss_function
    if not isinstance(criterion, RankingCriterion):
        raise without_ranking_loss(model)
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
    """Load the state of the ranking losses that ``save_pretrained`` wrote.

    ``from_pretrained`` builds the model of transformers, which does not know them, and warns that
    they were not used. To train on::

        model = RTDetrForObjectDetection.from_pretrained(folder)
        model = use_ranking_loss(model, StableAPLoss())
        model = load_ranking_state(model, folder)

    Args:
        model: A model that ``use_ranking_loss`` returned.
        folder: What ``save_pretrained`` was called with.

    Returns:
        The model, changed in place.

    Raises:
        UserError: If there is no such state, or it is that of another loss.
    """
    from safetensors.torch import load_file

    criterion = model.loss_function
    if not isinstance(criterion, RankingCriterion):
        raise without_ranking_loss(model)
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
