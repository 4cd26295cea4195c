"""Fields of the data samples that heads read."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.autograd import violated
from mmrank.errors import UserError

#: What a GPU says, which does not show the label.
_NO_CLASS = 'a label is not a class of the data set'


def labels_of(
    data_samples: Sequence, num_classes: int | None, device: torch.device, levels: bool = False
) -> Tensor:
    """(B,) int64 classes: ``gt_label`` of each sample, an int or one-element tensor.

    With ``levels`` it may be L ints, from coarse to fine, which gives (B, L). On a GPU a label out
    of [0, ``num_classes``) is a device-side assertion; of several the finest is meant.
    """
    fix = 'set gt_label in the data set, and end the pipeline with PackInputs'
    labels = _column(data_samples, 'gt_label', device, fix, levels)
    fits = labels >= 0
    if num_classes is not None:
        finest = labels if labels.dim() == 1 else labels[:, -1:]
        fits = fits & (finest < num_classes)
    limit = '' if num_classes is None else f' and < {num_classes}'
    if violated(fits.all(), _NO_CLASS):
        raise ValueError(
            f'gt_label must be >= 0{limit}, got labels from {int(labels.min())} to '
            f'{int(labels.max())}; set num_classes of the head to the number of classes of the '
            'training set'
        )
    return labels


def ids_of(data_samples: Sequence, key: str, device: torch.device) -> Tensor:
    """(B,) int64 of the field ``key``, an index that the data set sets."""
    fix = f'set it in the data set, and keep {key!r} in meta_keys of PackInputs'
    return _column(data_samples, key, device, fix)


def _column(data_samples, key: str, device, fix: str, several: bool = False) -> Tensor:
    missing = sum(key not in sample for sample in data_samples)
    if missing:
        raise UserError(f'{missing} of {len(data_samples)} data samples have no {key}; {fix}')
    values = [torch.as_tensor(sample.get(key)).reshape(-1) for sample in data_samples]
    width = values[0].numel() if several and values else 1
    wrong = [x.tolist() for x in values if x.numel() != max(width, 1)]
    if wrong:
        number = 'one integer' if width == 1 else f'{width} integers'
        raise ValueError(f'{key} must be {number} per sample, got {wrong[0]}')
    column = torch.cat(values) if values else torch.zeros(0, dtype=torch.long, device=device)
    if column.is_floating_point() or column.dtype == torch.bool:
        raise ValueError(f'{key} must be an integer, got {column.dtype}')
    column = column if width == 1 else column.view(-1, width)
    return column.long().to(device, non_blocking=True)


def one_vs_rest_targets(data_samples: Sequence, num_classes: int, device: torch.device) -> Tensor:
    """(n, C) float32 targets of one-vs-rest classifiers, 0 and 1.

    The samples have ``gt_score``, (C,) of 0 and 1, or else ``gt_label``: any number of class
    indices; with one class 0 or 1. On a GPU an index out of range is a device-side assertion.
    """
    for key, read in (('gt_score', _scores), ('gt_label', _classes)):
        having = sum(key in sample for sample in data_samples)
        if having == len(data_samples):
            return read([sample.get(key) for sample in data_samples], num_classes, device)
        if having:
            what = f'{having} of {len(data_samples)} data samples have a {key}'
            raise ValueError(f'{what}; set it for all in the data set')
    what = 'the data samples have neither gt_label nor gt_score'
    raise ValueError(f'{what}; set one in the data set, and end the pipeline with PackInputs')


def only_class(target: Tensor) -> Tensor:
    """(n,) int64 classes of (n, C) targets of 0 and 1, which have one class each."""
    labels = target.sum(1)
    if violated((labels == 1).all(), _NO_CLASS):
        raise ValueError(
            f'exclusive=True needs one label an image, got one of {int(labels[labels != 1][0])}. '
            'Fix: exclusive=False, or give each image one gt_label in the data set'
        )
    return target.argmax(1)


def _scores(scores: list[Tensor], num_classes: int, device) -> Tensor:
    wrong = [x for x in scores if x.shape != (num_classes,)]
    if wrong:
        raise ValueError(
            f'gt_score must be ({num_classes},), one number for each class, got shape '
            f'{tuple(wrong[0].shape)}; set num_classes of the head to the number of classes of the '
            'data set'
        )
    target = torch.stack(scores) if scores else torch.zeros(0, num_classes)
    target = target.to(device, non_blocking=True).float()
    is_mark = (target == 0) | (target == 1)
    if violated(is_mark.all(), _NO_CLASS):
        raise ValueError(
            f'gt_score must be 0 or 1, got {target[~is_mark][0].item()!r}; map other marks '
            '(uncertain, difficult) in the data set, and leave out transforms that mix labels'
        )
    return target


def _classes(labels: list[Tensor], num_classes: int, device) -> Tensor:
    labels = [torch.as_tensor(x).reshape(-1) for x in labels]
    sizes = torch.tensor([x.numel() for x in labels], dtype=torch.long)
    if num_classes == 1 and (sizes != 1).any():
        raise ValueError(
            'with num_classes=1 gt_label must be 0 or 1, one number for each sample, got '
            f'{labels[int((sizes != 1).nonzero()[0])].tolist()}; change it in the data set, or set '
            'gt_score'
        )
    width = max(num_classes, 2)  # of a binary label the columns of 0 and 1
    columns = torch.cat([*labels, torch.zeros(0, dtype=torch.long)])
    rows = torch.arange(len(labels)).repeat_interleave(sizes)
    rows, columns = (x.to(device, non_blocking=True) for x in (rows, columns.long()))
    if violated(((columns >= 0) & (columns < width)).all(), _NO_CLASS):
        raise ValueError(
            f'gt_label must be class indices from 0 to {width - 1}, got labels from '
            f'{int(columns.min())} to {int(columns.max())}; set num_classes of the head to the '
            'number of classes of the data set'
        )
    target = torch.zeros(len(labels), width, device=device)
    target[rows, columns] = 1
    return target[:, -num_classes:]
