"""Registry entry of CheckedCocoDataset that imports mmdet on first use."""

from mmrank.registry import DATASETS


@DATASETS.register_module(name='CheckedCocoDataset')
def build_checked_coco_dataset(*args, **kwargs) -> object:
    """Build a ``CheckedCocoDataset``.

    A builder stands in the registry, not the class: the class derives from
    mmdet's, and importing mmdet here would break users without it.

    Args:
        *args: As for ``mmdet.CocoDataset``.
        **kwargs: As for ``mmdet.CocoDataset``, and ``verify_images``.

    Returns:
        A :class:`mmrank.datasets.checked_coco_dataset.CheckedCocoDataset`.

    Raises:
        ImportError: If mmdet is not installed.
    """
    try:
        from mmrank.datasets.checked_coco_dataset import CheckedCocoDataset
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != 'mmdet':
            raise
        raise ImportError(
            "type='mmrank.CheckedCocoDataset' needs mmdet, which is not "
            'installed. Fix: `mim install mmdet`, or see the README for the '
            'reference stack.'
        ) from error
    return CheckedCocoDataset(*args, **kwargs)
