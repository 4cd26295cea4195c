"""Detectors whose criterion descends from that of RT-DETR's authors, on ranking losses.

LTDETR of lightly-train, the DETRs of LibreYOLO, and clones of RT-DETR, D-FINE, DEIM and DEIMv2.
"""

import copy

from torch import Tensor, nn

from mmrank.made_class import MadeClass

from .class_part import keep_centred, put_rankings
from .detectors import RankingSettings, check_ranks, check_settings
from .label_ranges import check_objects, remove_check
from .query_criterion import LAST, QueryCriterion, copies_of


class _AuthorsCriterion(QueryCriterion):
    """Mixin for criterions. The losses are the decoder's, and so saved and averaged with it."""

    logits = 'pred_logits'
    classes = 'labels'
    aux_mark = '_aux_'

    @property
    def rankings(self) -> nn.ModuleDict:
        return self.decoders[0].rankings

    def get_loss(self, loss: str, outputs: dict, *args, **kwargs) -> dict[str, Tensor]:
        # The proposals keep their own.
        if f'loss_{loss}' == self.loss_name and outputs['layer'] in self.rankings:
            return self.loss_labels(outputs, *args, **kwargs)
        return super().get_loss(loss, outputs, *args, **kwargs)


def _check_targets(decoder: nn.Module, args: tuple, named: dict) -> None:
    """Forward pre-hook: denoising queries are made from the labels before there is a loss."""
    targets = named.get('targets', args[1] if len(args) > 1 else None) or ()
    labels = [x['labels'] for x in targets]
    check_objects(labels, [x['boxes'] for x in targets], decoder.num_classes, 'num_classes')


class _StockExport(MadeClass):
    """Mixin for the module of lightly-train: the weights that it exports are of its own model."""

    def get_export_state_dict(self) -> dict:
        stock = copy.deepcopy(self)
        detach(stock)
        return stock.get_export_state_dict()


def attach(holder, settings: RankingSettings) -> None:
    """Put copies of the loss into ``holder.model.decoder``, which ``holder.criterion`` calls."""
    criterion = holder.criterion
    check_ranks(holder, isinstance(criterion, _AuthorsCriterion), False)
    check_settings(settings, criterion.num_classes, type(holder).__name__)
    criterion.__class__ = _AuthorsCriterion.class_for(type(criterion))
    criterion.decoders = _decoders(holder)
    (kind,) = {'vfl', 'mal', 'focal'} & {*criterion.losses}
    criterion.loss_name = f'loss_{kind}'
    criterion.loss_factor = criterion.weight_dict[criterion.loss_name]
    for decoder in criterion.decoders:
        layers = range(decoder.decoder.num_layers)
        names = [LAST, *(f'aux_{i}' for i in layers[:-1])]
        denoising = [f'dn_{i}' for i in layers]
        if hasattr(decoder, 'pre_bbox_head'):
            names.append('pre')
            denoising.append('dn_pre')
        names += denoising if decoder.num_denoising else []
        decoder.register_forward_pre_hook(_check_targets, with_kwargs=True)
        last = decoder.dec_score_head[decoder.decoder.eval_idx]
        put_rankings(decoder, copies_of(settings.loss, names, {}), {LAST: [last]}, settings)
    if hasattr(holder, 'get_export_state_dict'):
        holder.__class__ = _StockExport.class_for(type(holder))


def detach(holder) -> None:
    """Undo :func:`attach`; the centre moves into the bias of the scores."""
    criterion = holder.criterion
    check_ranks(holder, isinstance(criterion, _AuthorsCriterion), True)
    for decoder in criterion.decoders:
        keep_centred(decoder)
        remove_check(decoder, _check_targets)
        del decoder.rankings
    del criterion.decoders, criterion.loss_name, criterion.loss_factor
    vars(criterion).pop('calls', None)
    criterion.__class__ = criterion.host
    holder.__class__ = getattr(holder, 'host', type(holder))


def _decoders(holder) -> tuple[nn.Module, ...]:
    """Of the model, and of its average where the holder has made one. A tuple is no submodule."""
    average = getattr(holder, 'ema_model', None)
    return (holder.model.decoder, *(() if average is None else [average.model.decoder]))
