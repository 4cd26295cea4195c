"""Tells losses how many samples each class of the training set has."""

import numpy as np
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from mmrank.datasets.samplers.class_labels import class_labels
from mmrank.registry import HOOKS


@HOOKS.register_module()
class ClassCountsHook(Hook):
    """Gives ``prior='counts'`` the class counts of the training set.

    Before training the labels are counted and every module of the model that
    says ``wants_class_counts`` is told by ``set_class_counts``. The data set
    may be wrapped (``ConcatDataset``, ``RepeatDataset``,
    ``ClassBalancedDataset``): what the wrapper shows is counted, without
    loading an image. A model without such a module trains on as it is, so
    that a config with the hook serves every loss.

    The counts come from the data set, so they are not part of a checkpoint:
    keep the hook when a run is resumed.

    Raises:
        TypeError: Before training, if the labels of the data set are unknown.
        ValueError: Before training, if the data set has other classes than
            the loss.
    """

    def before_train(self, runner) -> None:
        """Count and tell."""
        model = runner.model
        model = model.module if is_model_wrapper(model) else model
        told = {
            name: module
            for name, module in model.named_modules()
            if getattr(module, 'wants_class_counts', False)
        }
        if not told:
            runner.logger.info(
                'ClassCountsHook: no loss asks for the class counts.'
            )
            return
        counts = count_classes(runner.train_loop.dataloader.dataset)
        for name, module in told.items():
            if module.num_classes != len(counts):
                raise ValueError(
                    f'the training set has {len(counts)} classes, but '
                    f'num_classes={module.num_classes} of {name}; set '
                    f'num_classes={len(counts)} of the head or loss'
                )
            module.set_class_counts(counts.tolist())
        runner.logger.info(
            f'ClassCountsHook: {len(counts)} classes of {counts.min()} to '
            f'{counts.max()} samples told to {", ".join(told)}.'
        )


def count_classes(dataset) -> np.ndarray:
    """Samples of each class in a data set.

    Args:
        dataset: See :func:`mmrank.datasets.samplers.class_labels.\
class_labels`.

    Returns:
        (C,) int64 counts. C is the number of classes that the data set
        names, or else the largest label + 1.

    Raises:
        TypeError: If its labels are unknown.
        ValueError: If it is empty, or has a label beyond its classes.
    """
    labels = class_labels(dataset)
    if not labels.size:
        raise ValueError(f'{type(dataset).__name__} is empty')
    names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
    size = len(names) if names else int(labels.max()) + 1
    if labels.min() < 0 or labels.max() >= size:
        raise ValueError(
            f'{type(dataset).__name__} has labels from {labels.min()} to '
            f'{labels.max()}, but {size} classes; make its gt_label and '
            "metainfo['classes'] agree"
        )
    return np.bincount(labels, minlength=size)
