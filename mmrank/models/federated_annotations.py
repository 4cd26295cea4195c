"""Which scores are negatives where annotations are federated.

In a federated data set an image is annotated for some of the classes only. For the others nobody
has looked, so a box there is neither a positive nor a negative. The rules are the rules of the
evaluation of LVIS (Gupta et al., LVIS: A Dataset for Large Vocabulary Instance Segmentation, CVPR
2019, sections 2.2 and 3): for a class c, an image belongs to

- its positive set: an object of c is annotated;
- its negative set: c was verified to be absent (``neg_category_ids``);
- neither: boxes of c are ignored.

In an image of the positive set that is marked as not exhaustive for c
(``not_exhaustive_category_ids``), matched boxes count and unmatched ones are ignored. A ranking
loss ranks what the evaluation ranks: positives wherever they are, against negatives in images that
are *exhaustive* for their class, ``(positive or negative) and not marked``.
"""

import inspect
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mmrank.errors import UserError
from mmrank.losses.base import HeadLoss

#: Of the meta information of an image: indices of the classes whose every object is annotated.
#: ``mmrank.LVISDataset`` writes it.
FIELD = 'exhaustive_labels'
#: Classes that weigh each score and not each row, by name: they are mmdet's.
_ELEMENT_WISE = ('FocalLoss',)


def exhaustive_classes(
    metas: Sequence[Mapping], num_classes: int, device: torch.device, user: str
) -> Tensor:
    """(N, C) bool on ``device``: the classes that each image is annotated for exhaustively.

    The host does not wait for it. ``user`` is the name of the caller, for messages.
    """
    for meta in metas:
        if FIELD not in meta:
            raise UserError(
                f'{user} has federated=True, but the data samples have no {FIELD!r}, only '
                f"{sorted(map(str, meta))}. Fix: type='mmrank.LVISDataset' for the training set, "
                f"and in its pipeline dict(type='PackDetInputs', meta_keys=(..., {FIELD!r}))"
            )
    labels = [np.asarray(meta[FIELD], dtype=np.int64) for meta in metas]
    images = np.repeat(np.arange(len(labels)), [x.size for x in labels])
    joined = np.concatenate([np.zeros(0, np.int64), *labels])
    if joined.size and not 0 <= joined.min() <= joined.max() < num_classes:
        raise UserError(
            f'{FIELD} of the data samples holds class indices from {joined.min()} to '
            f'{joined.max()}, but {user} has num_classes={num_classes}. Fix: set num_classes of '
            'the head to the number of classes of the data set'
        )
    found = np.zeros((len(labels), num_classes), dtype=bool)
    found[images, joined] = True
    return torch.from_numpy(found).to(device, non_blocking=True)


def federated_weight(
    loss: nn.Module, exhaustive: Tensor, images: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor:
    """(n, C) weights by which a loss ignores classes that an image is not annotated for.

    A positive has the weight of its row, and so has another score in an image that is exhaustive
    for its class; the rest have 0. A ranking loss takes a mask, which is faster, where every row
    counts once. ``exhaustive`` is (N, C); (n,) are the image of each row, its class index, C for
    background, and its weight.
    """
    counted = exhaustive.index_select(0, images)
    num_classes = counted.size(1)
    # In place, since there may be 10^8 scores.
    target = target.long()
    own = target.clamp(max=num_classes - 1).unsqueeze(1)
    is_positive = (target < num_classes).unsqueeze(1)
    counted.scatter_(1, own, counted.gather(1, own) | is_positive)
    if weight is not None:
        counted &= (weight > 0).unsqueeze(1)
        return counted * weight.unsqueeze(1)
    return counted if isinstance(loss, HeadLoss) else counted.float()


def check_federated_loss(loss: nn.Module, user: str) -> None:
    """Raise ``TypeError`` if a loss is neither a ranking loss nor mmdet's focal loss."""
    name = type(loss).__name__
    if not isinstance(loss, HeadLoss) and name not in _ELEMENT_WISE:
        raise TypeError(
            f'federated=True of {user} ignores single classes of a box, which loss_cls={name} does '
            'not support; use a ranking loss such as mmrank.StableAPLoss, or mmdet.FocalLoss'
        )


def check_federated_host(host: type) -> None:
    """Raise ``TypeError`` if a head does not tell classes apart, or its losses see no images."""
    if any(base.__name__ in ('RPNHead', 'GARPNHead') for base in host.__mro__):
        raise TypeError(
            f'federated=True of {host.__name__}: it finds objects of any class, and federated '
            'annotations say which classes an image lacks; remove federated, and use '
            'mmrank.FederatedRoIHead for the second stage'
        )
    parameters = inspect.signature(host.loss_by_feat).parameters
    if 'batch_img_metas' not in parameters:
        raise TypeError(
            f'federated=True of {host.__name__}: its loss_by_feat takes no batch_img_metas, so it '
            'does not know which classes an image is annotated for; remove federated'
        )


def images_of_levels(cls_scores: Sequence[Tensor], num_classes: int, by_image: bool) -> Tensor:
    """(n,) image of each row that a dense head passes to its loss.

    The scores of each level are (N, A * C, H, W). With ``by_image`` the rows of an image lie
    together, all levels; otherwise the rows of a level do, all images.
    """
    images = torch.arange(cls_scores[0].size(0), device=cls_scores[0].device)
    rows = [scores[0].numel() // num_classes for scores in cls_scores]
    if by_image:
        return images.repeat_interleave(sum(rows))
    return torch.cat([images.repeat_interleave(number) for number in rows])
