"""Description of a detector for tables, read from its config."""

from collections.abc import Iterator, Mapping
from typing import Any

UNKNOWN = '-'


def describe_loss(model: Mapping[str, Any]) -> str:
    """Name the classification loss.

    Args:
        model: ``model`` of an mmdet config.

    Returns:
        Type of the loss without ``Loss`` and scope: ``'StableAP'``, ``'Focal'``; the R-CNN's for a
        two-stage detector; ``'-'`` where the config names none.
    """
    head = _first(model.get('bbox_head'))
    if head is None:
        roi_head = model.get('roi_head') or {}
        head = _first(roi_head.get('bbox_head'))
    loss = (head or {}).get('loss_cls') or {}
    kind = str(loss.get('type', '')).rpartition('.')[2]
    return kind.removesuffix('Loss') or UNKNOWN


def describe_backbone(model: Mapping[str, Any]) -> str:
    """Name the backbone.

    Args:
        model: ``model`` of an mmdet config.

    Returns:
        Type and depth: ``'ResNet-50'``.
    """
    backbone = model.get('backbone') or {}
    kind = str(backbone.get('type', '')).rpartition('.')[2]
    depth = backbone.get('depth')
    return f'{kind}-{depth}' if depth else kind or UNKNOWN


def describe_test_size(dataset: Mapping[str, Any]) -> str:
    """Name the image size in testing.

    Args:
        dataset: ``test_dataloader.dataset`` of a config.

    Returns:
        Longest and shortest side of the first resize: ``'1333 x 800'``; ``'-'`` where the pipeline
        has none.
    """
    for step in walk_pipeline(dataset):
        scale = step.get('scale') or step.get('img_scale')
        if isinstance(scale, list | tuple) and len(scale) == 2:
            return f'{scale[0]} x {scale[1]}'
    return UNKNOWN


def walk_pipeline(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the transforms of a data set, or of the one it wraps."""
    while 'pipeline' not in dataset and 'dataset' in dataset:
        dataset = dataset['dataset']
    yield from dataset.get('pipeline') or ()


def _first(head: Any) -> Any:
    """The head, or the first of a cascade."""
    return head[0] if isinstance(head, list | tuple) and head else head
