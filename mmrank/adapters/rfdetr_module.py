"""The ``rfdetr`` package on a ranking loss."""

from functools import partial

import torch
from torch import Tensor, nn

from mmrank.errors import UserError
from mmrank.losses import IABCELoss

from .detectors import RankingSettings, centre_of, check_ranks, check_settings
from .label_ranges import check_objects
from .query_criterion import LAST, QueryCriterion, copies_of


class _QuerySetCriterion(QueryCriterion):
    """Mixin for ``rfdetr.models.criterion.SetCriterion``."""

    logits = 'pred_logits'
    classes = 'labels'

    def forward(
        self, outputs: dict, targets: list[dict], num_boxes: Tensor | float | None = None
    ) -> dict[str, Tensor]:
        """Losses of all layers; without ``class_error``, which is logged alone."""
        if targets and 'valid' in targets[0]:
            raise UserError(
                'pad_targets_to adds objects that are none, and a ranking would take them for '
                'positives. Fix: TrainConfig(pad_targets_to=None)'
            )
        labels = [x['labels'] for x in targets]
        check_objects(labels, [x['boxes'] for x in targets], self.num_classes, 'num_classes')
        return super().forward(outputs, targets, num_boxes=num_boxes)


def show_centred(criterion: nn.Module, postprocess: nn.Module, args: tuple) -> tuple:
    """Forward pre-hook of the post-processing: the mean positive score at 0."""
    outputs, *others = args
    logits = outputs['pred_logits']
    centred = logits - centre_of(criterion.rankings[LAST], logits)
    return ({**outputs, 'pred_logits': centred}, *others)


def attach(module: nn.Module, settings: RankingSettings) -> None:
    """Put the ranking losses into a module, see :func:`mmrank.adapters.use_ranking_loss`."""
    criterion = module.criterion
    loss = settings.loss
    name = type(module).__name__
    check_ranks(module, isinstance(criterion, _QuerySetCriterion), False)
    if 'keypoints' in criterion.losses:
        raise UserError(f'a keypoint model is not supported for {name}. Fix: use one without')
    check_settings(settings, criterion.num_classes, name)
    names = ['aux_' + key.removeprefix('loss_ce_') for key in criterion.weight_dict]
    names = [LAST, *(x for x in names if x.removeprefix('aux_').isdigit())]
    proposals = {'enc': IABCELoss(criterion.focal_alpha, scope=loss.scope)}
    criterion.__class__ = _QuerySetCriterion.class_for(type(criterion))
    criterion.rankings = copies_of(loss, names, proposals).to(module.model.class_embed.bias.device)
    criterion.rankings.train(criterion.training)
    if settings.centre_scores:
        hook = partial(show_centred, criterion)
        criterion.centring = module.postprocess.register_forward_pre_hook(hook)


def detach(module: nn.Module) -> None:
    """Undo :func:`attach`; the centre moves into the bias of the scores."""
    criterion = module.criterion
    check_ranks(module, isinstance(criterion, _QuerySetCriterion), True)
    if hasattr(criterion, 'centring'):
        bias = module.model.class_embed.bias
        with torch.no_grad():
            bias -= centre_of(criterion.rankings[LAST], bias.detach())
        criterion.centring.remove()
        del criterion.centring
    criterion.__class__ = criterion.host
    del criterion.rankings
    vars(criterion).pop('calls', None)
