"""Tells losses how many samples each class of the training set has."""

import numpy as np
from mmengine.hooks import Hook

from mmrank.datasets.samplers.batch_stream import check_loader
from mmrank.datasets.samplers.labels import class_labels, label_pairs
from mmrank.engine.unwrap_model import unwrap_model
from mmrank.losses.protocols import TakesClassCounts
from mmrank.registry import HOOKS


@HOOKS.register_module()
class ClassCountsHook(Hook):
    """Passes the class counts of the training set to losses.

    Counts the labels before training and calls ``set_class_counts`` of every module of the model
    with a true ``wants_class_counts``: losses with ``prior='counts'``, ``mmrank.LDAMLoss``,
    ``mmrank.ClassBalancedCELoss``. The data set may be wrapped (``ConcatDataset``,
    ``RepeatDataset``, and for one class per item ``ClassBalancedDataset``): what the wrapper shows
    is counted, without loading an image. Items may have several classes or none. A loss with one
    class takes label 1 for its positives. Has no effect on a model without such a module, so a
    config with the hook works with every loss.

    The counts come from the data set, so they are not part of a checkpoint: keep the hook when a
    run is resumed.

    Raises:
        UserError: Before training, if the data loader has another batch size than its sampler.
        TypeError: Before training, if the labels of the data set are unknown.
        ValueError: Before training, if the data set has other classes than
            the loss.
    """

    def before_train(self, runner) -> None:
        """Count the labels and pass the counts on."""
        check_loader(runner.train_loop.dataloader)
        model = unwrap_model(runner.model)
        told = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, TakesClassCounts) and module.wants_class_counts
        }
        if not told:
            runner.logger.info('ClassCountsHook: no loss requires class counts.')
            return
        dataset = runner.train_loop.dataloader.dataset
        every = count_classes(dataset)
        for name, module in told.items():
            counts = every
            if module.num_classes == 1 and len(every) == 2:
                counts = every[1:]
            if module.num_classes != len(counts):
                raise ValueError(
                    f'the training set has {len(counts)} classes, but '
                    f'num_classes={module.num_classes} of {name}; set '
                    f'num_classes={len(counts)} of the head or loss'
                )
            module.set_class_counts(counts.tolist(), len(dataset))
        runner.logger.info(
            f'ClassCountsHook: {len(every)} classes of {every.min()} to {every.max()} of '
            f'{len(dataset)} samples passed to {", ".join(told)}.'
        )


def count_classes(dataset) -> np.ndarray:
    """Samples of each class in a data set.

    Args:
        dataset: See :func:`mmrank.datasets.samplers.labels.\
class_labels` and, for several classes per item, ``label_pairs``.

    Returns:
        (C,) int64 counts. C is the number of classes that the data set
        names, or else the largest label + 1.

    Raises:
        TypeError: If its labels are unknown.
        ValueError: If it is empty, or has a label beyond its classes.
    """
    if not len(dataset):
        raise ValueError(f'{type(dataset).__name__} is empty')
    try:
        labels = class_labels(dataset)
    except (ValueError, KeyError):  # not one class per item
        labels = label_pairs(dataset)[1]
        if not labels.size:
            raise ValueError(f'no item of {type(dataset).__name__} has a class') from None
    names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
    size = len(names) if names else int(labels.max()) + 1
    if labels.min() < 0 or labels.max() >= size:
        raise ValueError(
            f'{type(dataset).__name__} has labels from {labels.min()} to '
            f'{labels.max()}, but {size} classes; make its gt_label and '
            "metainfo['classes'] agree"
        )
    return np.bincount(labels, minlength=size)
