"""Losses by the names of methods in plans: in words, and one colour for each in all pictures."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from mmrank.pictures.palette import colour


class _LossStyle(NamedTuple):
    """Name of a loss in words, and its colour as ``#rrggbb``."""

    name: str
    colour: str


#: Styles by the name of a method in a plan. Losses that are compared with each other differ in
#: colour; contrastive and two-tower losses, which no picture shows together with ranking losses,
#: use the first colours again.
LOSS_STYLES = {
    'stable_ap': _LossStyle('stable AP', colour(0)),
    'graded_stable_ap': _LossStyle('graded stable AP', colour(0)),
    'graded_ap': _LossStyle('graded AP-Loss', colour(0)),
    'quality_focal': _LossStyle('quality focal', '#AA4499'),
    'focal': _LossStyle('focal', colour(1)),
    'partial_auc': _LossStyle('partial AUC', '#999933'),
    'soprc': _LossStyle('SOPRC', colour(2)),
    'smooth_ap': _LossStyle('SmoothAP', colour(3)),
    'listwise_ap': _LossStyle('list-wise AP', colour(4)),
    'fast_ap': _LossStyle('FastAP', colour(5)),
    'blackbox_ap': _LossStyle('BlackBox AP', '#882255'),
    'auc_sigmoid': _LossStyle('AUC, sigmoid', '#117733'),
    'auc_huber': _LossStyle('AUC, Huber', '#44AA99'),
    'contrastive': _LossStyle('contrastive', '#999933'),
    'triplet': _LossStyle('triplet', '#332288'),
    'multi_similarity': _LossStyle('multi-similarity', '#AA4499'),
    'info_nce': _LossStyle('InfoNCE', '#005F73'),
    'recall_at_k': _LossStyle('Recall@k', '#7F4F24'),
    'hap': _LossStyle('H-AP', '#4F7942'),
    'ndcg': _LossStyle('NDCG', '#A0522D'),
    'xbm': _LossStyle('contrastive with a memory', '#888888'),
    'ap_loss': _LossStyle('AP-Loss', '#B8860B'),
    'alrp': _LossStyle('aLRP', '#6A3D9A'),
    'rank_sort': _LossStyle('Rank & Sort', '#33A02C'),
    'dr_loss': _LossStyle('DR loss', '#666666'),
    'ce': _LossStyle('cross-entropy', '#1F3A5F'),
    'cross_entropy': _LossStyle('cross-entropy', '#1F3A5F'),
    'cb_ce': _LossStyle('class-balanced cross-entropy', '#17BECF'),
    'ldam': _LossStyle('LDAM', '#8C564B'),
    'softmax': _LossStyle('softmax', '#999933'),
    'balanced_softmax': _LossStyle('balanced softmax', '#332288'),
    'la_bce': _LossStyle('logit-adjusted sigmoid', '#AA4499'),
    'mauc': _LossStyle('MAUC', '#BCBD22'),
    'soap': _LossStyle('SOAP', '#9467BD'),
    'isogclr': _LossStyle('iSogCLR', colour(0)),
    'clip': _LossStyle('CLIP', colour(1)),
    'simclr': _LossStyle('SimCLR', colour(1)),
    'sogclr': _LossStyle('SogCLR', colour(4)),
    'fastclip': _LossStyle('FastCLIP', colour(2)),
    'cyclip': _LossStyle('CyCLIP', colour(5)),
    'infonce': _LossStyle('InfoNCE', '#005F73'),
    'individual': _LossStyle('individual CLIP', colour(3)),
    'nuclr': _LossStyle('NUCLR', '#AA4499'),
    'tempnet': _LossStyle('TempNet', '#882255'),
    'unicl': _LossStyle('UniCL', '#117733'),
    'unbiased': _LossStyle('unbiased', colour(0)),
    'unbiased_omega': _LossStyle('unbiased with omega', colour(1)),
    'in_batch': _LossStyle('in-batch', colour(2)),
    'popularity': _LossStyle('popularity', colour(3)),
    'pos_neg': _LossStyle('positive-negative', colour(4)),
    'sogram': _LossStyle('Sogram', colour(5)),
}


def colours_of(names: Sequence[str]) -> list[str]:
    """Colours of the models of one picture, by their losses.

    ``stable_ap``, ``stable AP`` and ``stable_ap-0.25`` are one loss. Other names, and further
    models of one loss, get colours that are free in this picture, as long as there are any.
    """
    found: list[str | None] = []
    for name in names:
        key = loss_key(name)
        own = None if key is None else LOSS_STYLES[key].colour
        found.append(None if own in found else own)
    every = dict.fromkeys([*map(colour, range(6)), *(x.colour for x in LOSS_STYLES.values())])
    free = [c for c in every if c not in found] or list(every)
    places = [i for i, own in enumerate(found) if own is None]
    for turn, place in enumerate(places):
        found[place] = free[turn % len(free)]
    return found


def loss_key(name: str) -> str | None:
    """Key of the loss that a name begins with, the longest one."""
    plain = '_'.join(re.split(r'[\W_]+', name.lower())).strip('_')
    fits = [k for k in LOSS_STYLES if f'{plain}_'.startswith(f'{k}_')]
    return max(fits, key=len, default=None)


def loss_name(name: str) -> str:
    """Name in words of a model of a plan; an unknown name, and words, as they are.

    The number of ``graded_ap_0.6`` is the weight of the class part.
    """
    key = loss_key(name)
    if key is None or re.search(r'[^\w.+-]', name):
        return name
    weighted = re.fullmatch(r'(.*)_(\d+(?:\.\d+)?)', name)
    if weighted:
        return f'{loss_name(weighted[1])}, weight {weighted[2]}'
    rest = re.split(r'[\W_]+', name, maxsplit=key.count('_') + 1)
    return ' '.join([LOSS_STYLES[key].name, *rest[key.count('_') + 1 :]]).strip()
