"""What a head reads from the data samples of a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor


def labels_of(data_samples: Sequence, num_classes: int | None, device: torch.device) -> Tensor:
    """Class of each sample.

    Args:
        data_samples: Data samples with ``gt_label``, an int or one-element tensor each.
        num_classes: Number of classes C that the labels must stay below, or None.
        device: Where to put them.

    Returns:
        (B,) int64.

    Raises:
        ValueError: If a sample has no label or several, or one is out of range; on a GPU the latter
            is a device-side assertion.
    """
    labels = _column(
        data_samples,
        'gt_label',
        device,
        'set gt_label in the data set, and end the pipeline with PackInputs',
    )
    fits = labels >= 0
    if num_classes is not None:
        fits = fits & (labels < num_classes)
    if labels.device.type != 'cpu':
        torch._assert_async(fits.all())
    elif not fits.all():
        limit = '' if num_classes is None else f' and < {num_classes}'
        raise ValueError(
            f'gt_label must be >= 0{limit}, got labels from '
            f'{int(labels.min())} to {int(labels.max())}; set num_classes of '
            'the head to the number of classes of the training set'
        )
    return labels


def sample_ids_of(data_samples: Sequence, device: torch.device) -> Tensor:
    """Index in the data set of each sample.

    Args:
        data_samples: Data samples with ``sample_idx``, an int each.
        device: Where to put them.

    Returns:
        (B,) int64.

    Raises:
        ValueError: If a sample has none.
    """
    return _column(
        data_samples,
        'sample_idx',
        device,
        'the memory needs it to find copies of one image; keep '
        "'sample_idx' in meta_keys of PackInputs, or remove the memory",
    )


def ids_of(data_samples: Sequence, key: str, device: torch.device) -> Tensor:
    """An index of each sample that the data set sets.

    Args:
        data_samples: Data samples with ``key``, an int each.
        key: Name of the field.
        device: Where to put them.

    Returns:
        (B,) int64.

    Raises:
        ValueError: If a sample has none.
    """
    return _column(
        data_samples,
        key,
        device,
        f'set it in the data set, and keep {key!r} in meta_keys of PackInputs',
    )


def _column(data_samples, key: str, device, fix: str) -> Tensor:
    missing = sum(key not in sample for sample in data_samples)
    if missing:
        raise ValueError(f'{missing} of {len(data_samples)} data samples have no {key}; {fix}')
    values = [torch.as_tensor(sample.get(key)).reshape(-1) for sample in data_samples]
    wrong = [x.tolist() for x in values if x.numel() != 1]
    if wrong:
        raise ValueError(f'{key} must be one integer per sample, got {wrong[0]}')
    column = torch.cat(values) if values else torch.zeros(0, dtype=torch.long, device=device)
    if column.is_floating_point() or column.dtype == torch.bool:
        raise ValueError(f'{key} must be an integer, got {column.dtype}')
    return column.long().to(device, non_blocking=True)
