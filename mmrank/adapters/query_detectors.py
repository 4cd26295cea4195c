"""Detectors with a criterion of the family of RT-DETR, on ranking losses.

LTDETR of lightly-train, the DETRs of LibreYOLO, and clones of RT-DETR, D-FINE, DEIM and DEIMv2.
"""

import copy

from torch import Tensor

from .class_part import MadePart, RankingSettings, check_objects, copies_of, make_part, put_rankings
from .detectors import check_fit, remove_ranking_loss
from .query_criterion import LAST, QueryCriterion


class _AuthorsCriterion(QueryCriterion):
    """Mixin for criterions. The losses are the decoder's, and so saved and averaged with it."""

    logits = 'pred_logits'
    classes = 'labels'
    aux_mark = '_aux_'
    decoders: tuple[MadePart, ...]

    @property
    def rankings(self):  # pyright: ignore[reportIncompatibleVariableOverride]  # the decoder's
        return self.decoders[0].rankings

    def get_loss(self, loss: str, outputs: dict, *args, **kwargs) -> dict[str, Tensor]:
        # The proposals keep their own.
        if f'loss_{loss}' == self.loss_name and outputs['layer'] in self.rankings:
            return self.loss_labels(outputs, *args, **kwargs)
        return super().get_loss(loss, outputs, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # the host's


class _CheckedDecoder(MadePart):
    """Mixin for decoders: denoising queries are made from the labels before there is a loss."""

    num_classes: int

    def forward(self, feats, targets=None, *args, **kwargs):
        labels = [x['labels'] for x in targets or ()]
        boxes = [x['boxes'] for x in targets or ()]
        check_objects(labels, boxes, self.num_classes, 'num_classes')
        return super().forward(feats, targets, *args, **kwargs)


class _StockExport(MadePart):
    """Mixin for the module of lightly-train: the weights that it exports are of its own model."""

    def get_export_state_dict(self) -> dict:
        return remove_ranking_loss(copy.deepcopy(self)).get_export_state_dict()


def attach(holder, settings: RankingSettings) -> None:
    """Put copies of the loss into ``holder.model.decoder``, which ``holder.criterion`` calls."""
    criterion = holder.criterion
    check_fit(settings, criterion.num_classes, type(holder).__name__)
    # The average of the model has a decoder, too. A tuple adds no submodules to the criterion.
    average = getattr(holder, 'ema_model', None)
    decoders = tuple(x.model.decoder for x in (holder, average) if x is not None)
    (kind,) = {'vfl', 'mal', 'focal'} & {*criterion.losses}
    name = f'loss_{kind}'
    factor = criterion.weight_dict[name]
    make_part(criterion, _AuthorsCriterion, decoders=decoders, loss_name=name, loss_factor=factor)
    for decoder in decoders:
        layers = range(decoder.decoder.num_layers)
        names = [LAST, *(f'aux_{i}' for i in layers[:-1])]
        denoising = [f'dn_{i}' for i in layers]
        if hasattr(decoder, 'pre_bbox_head'):
            names.append('pre')
            denoising.append('dn_pre')
        names += denoising if decoder.num_denoising else []
        last = {LAST: [decoder.dec_score_head[decoder.decoder.eval_idx]]}
        losses = copies_of(settings.loss, names)
        put_rankings(decoder, _CheckedDecoder, last, settings, losses)
    if hasattr(holder, 'get_export_state_dict'):
        make_part(holder, _StockExport)
