"""The ``rfdetr`` package on a ranking loss."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mmrank.errors import UserError
from mmrank.losses import IABCELoss

from .class_part import RankingSettings, centre_of, check_objects, copies_of, put_rankings
from .detectors import check_fit
from .query_criterion import LAST, QueryCriterion


class _QuerySetCriterion(QueryCriterion):
    """Mixin for ``rfdetr.models.criterion.SetCriterion``."""

    logits = 'pred_logits'
    classes = 'labels'
    # The post-processing shows it, also of an average of the model.
    shows_centre = False
    centring: RemovableHandle

    def forward(
        self, outputs: dict, targets: list[dict], num_boxes: Tensor | float | None = None, **kwargs
    ) -> dict[str, Tensor]:
        """Losses of all layers; without ``class_error``, which is logged alone."""
        if targets and 'valid' in targets[0]:
            raise UserError(
                'pad_targets_to adds objects that are none, and a ranking would take them for '
                'positives. Fix: TrainConfig(pad_targets_to=None)'
            )
        labels = [x['labels'] for x in targets]
        check_objects(labels, [x['boxes'] for x in targets], self.num_classes, 'num_classes')
        return super().forward(outputs, targets, num_boxes=num_boxes, **kwargs)

    def leave(self, model) -> None:
        if hasattr(self, 'centring'):
            bias = model.model.class_embed.bias
            with torch.no_grad():
                bias -= centre_of(self.rankings[LAST], bias.detach())
            self.centring.remove()
            del self.centring
        super().leave(model)


def show_centred(criterion: QueryCriterion, postprocess: nn.Module, args: tuple) -> tuple:
    """Forward pre-hook of the post-processing: the mean positive score at 0."""
    outputs, *others = args
    logits = outputs['pred_logits']
    centred = logits - centre_of(criterion.rankings[LAST], logits)
    return ({**outputs, 'pred_logits': centred}, *others)


def attach(module, settings: RankingSettings) -> None:
    """Put copies of the loss into the criterion of a module."""
    criterion = module.criterion
    loss = settings.loss
    name = type(module).__name__
    if 'keypoints' in criterion.losses:
        raise UserError(f'a keypoint model is not supported for {name}. Fix: use one without')
    check_fit(settings, criterion.num_classes, name)
    names = ['aux_' + key.removeprefix('loss_ce_') for key in criterion.weight_dict]
    names = [LAST, *(x for x in names if x.removeprefix('aux_').isdigit())]
    proposals = {'enc': IABCELoss(criterion.focal_alpha, scope=loss.scope)}
    losses = copies_of(loss, names, proposals)
    layers = {LAST: [module.model.class_embed]}
    made = put_rankings(criterion, _QuerySetCriterion, layers, settings, losses)
    if settings.centre_scores:
        hook = partial(show_centred, made)
        made.centring = module.postprocess.register_forward_pre_hook(hook)
