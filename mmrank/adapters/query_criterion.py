"""Criterions of DETR libraries with rankings in place of their classification loss."""

import torch
from torch import Tensor

from mmrank.distributed import world_group
from mmrank.losses.ranking.separate_rankings import can_be_separate, separate_rankings
from mmrank.tensors import at_least_float32

from .class_part import ClassPart, MadePart, aligned_iou

#: The last decoder layer, whose scores the model predicts.
LAST = 'last'
#: What the libraries call the outputs of layers, and the single ones.
_LISTS = {'auxiliary_outputs': 'aux', 'aux_outputs': 'aux', 'enc_aux_outputs': 'enc'}
_LISTS |= dict.fromkeys(('dn_auxiliary_outputs', 'dn_aux_outputs', 'dn_outputs'), 'dn')
_SINGLE = {'enc_outputs': 'enc', 'pre_outputs': 'pre', 'dn_pre_outputs': 'dn_pre'}


class QueryCriterion(MadePart):
    """Mixin for criterions: all queries of all images of a layer are one ranking.

    Matching and box losses stay the criterion's; the rankings of all layers are computed in
    one call where the loss allows it. ``rankings`` has the loss of each layer: ``last``, ``aux_0``
    and so on before it, ``dn_0`` ... of denoising queries, ``enc`` of the encoder's proposals.
    """

    doc_suffix = 'on rankings'
    #: Keys of the library: of its outputs, targets and losses.
    logits = 'logits'
    classes = 'class_labels'
    loss_name = 'loss_ce'
    aux_mark = '_'
    loss_factor = 1.0
    num_classes: int
    weight_dict: dict[str, float]

    def forward(self, outputs: dict, targets: list[dict], **kwargs) -> dict[str, Tensor]:
        """Losses of all layers; the names are the criterion's."""
        # Each layer is told its name.
        named = {**outputs, 'layer': LAST}
        for key, kind in _LISTS.items():
            if key in outputs:
                layers = enumerate(outputs[key])
                named[key] = [{**layer, 'layer': f'{kind}_{i}'} for i, layer in layers]
        for key, name in _SINGLE.items():
            if key in outputs:
                named[key] = {**outputs[key], 'layer': name}
        self.calls: dict[str, ClassPart] = {}  # of each layer
        losses = super().forward(named, targets, **kwargs)
        calls = self.calls
        if world_group() is not None:
            # A rank without boxes has no denoising queries. The others wait for it to take part in
            # their rankings.
            rows = outputs[self.logits].flatten(0, 1)[:0]
            empty = ClassPart(rows, rows.new_zeros(0, dtype=torch.long), rows.new_zeros(0))
            lacking = [x for x in self.rankings if x.startswith('dn_') and x not in self.calls]
            calls = {**calls, **dict.fromkeys(lacking, empty)}
        ranked = self._ranked(calls)
        for name in self.calls:
            key = '' if name == LAST else f'_{name}'.replace('_aux_', self.aux_mark)
            losses[self.loss_name + key] = self.loss_factor * ranked[name]
        del self.calls
        return losses

    def loss_labels(
        self, outputs: dict, targets: list[dict], indices: list, num_boxes, **kwargs
    ) -> dict[str, Tensor]:
        """Note the scores of one layer, (B, Q, C), and its matched queries and objects."""
        logits = outputs[self.logits]
        name = outputs['layer']
        rows = torch.cat([i + n * logits.size(1) for n, (i, _) in enumerate(indices)])
        rows, order = rows.to(logits.device).sort()

        def matched(key: str) -> Tensor:
            found = [t[key][j.to(t[key].device)] for t, (_, j) in zip(targets, indices)]
            return torch.cat(found)[order]

        classes = matched(self.classes)
        labels = classes.new_full((logits.shape[:2].numel(),), logits.size(-1))
        labels[rows] = classes
        quality = None
        if self.rankings[name].box_input is not None:
            found = outputs['pred_boxes'].detach().flatten(0, 1)[rows]
            quality = aligned_iou(corners(found), corners(matched('boxes')))
        self.calls[name] = ClassPart(logits.flatten(0, 1), labels, quality)
        return {}

    def _ranked(self, calls: dict) -> dict[str, Tensor]:
        """Scalar loss of each layer. The order is ``rankings``' own, the same on all ranks."""
        batches: dict[tuple, list[str]] = {}
        for name, loss in self.rankings.items():
            if name in calls:
                batches.setdefault((name[:3] == 'dn_', type(loss)), []).append(name)
        found = {}
        for names in batches.values():
            losses = [self.rankings[name] for name in names]
            if len(names) > 1 and can_be_separate(losses):
                parts = [calls[name] for name in names]
                lists = [(part.logits, part.labels, None) for part in parts]
                ious = None if losses[0].box_input is None else [part.quality for part in parts]
                found.update(zip(names, separate_rankings(losses, lists, ious)))
                continue
            found.update({name: calls[name].loss(x) for name, x in zip(names, losses)})
        return found


def corners(boxes: Tensor) -> Tensor:
    """(n, 4) centre and size as corners, at least float32."""
    centre, size = at_least_float32(boxes).split(2, dim=1)
    return torch.cat([centre - size / 2, centre + size / 2], 1)
