"""Hooks that tell losses about the training set, and when to weight its classes."""

import math
from typing import ClassVar

import numpy as np
import torch
from mmengine.hooks import Hook
from torch import nn

from mmrank.datasets.batch_stream import check_loader
from mmrank.datasets.labels import class_labels, class_names, label_pairs
from mmrank.engine.runners import modules_with, unwrap_model
from mmrank.errors import UserError
from mmrank.registry import HOOKS
from mmrank.settings import check_count, check_not_negative
from mmrank.state import SampleLogMean


class _TrainingSetHook(Hook):
    """Base of hooks that pass facts of the training set to the modules that require them.

    Before training, every module with a true ``wants_class_counts``, ``wants_pair_counts`` or
    ``wants_class_labels`` takes them by ``set_class_counts``, ``set_pairs`` or
    ``set_class_labels``; see :mod:`mmrank.losses.protocols`. Other models are left alone. No image
    is loaded. Checkpoints do not hold the facts: keep the hook when a run is resumed.
    """

    fact: ClassVar[str]  # What is passed on, by the attributes ``wants_<fact>`` of modules

    def before_train(self, runner) -> None:
        check_loader(runner.train_loop.dataloader)
        dataset = runner.train_loop.dataloader.dataset
        consumers = modules_with(runner, f'wants_{self.fact}')
        text = f'no module requires {self.fact.replace("_", " ")}'
        if consumers:
            found = self.pass_on(consumers, dataset)
            names = ', '.join(name or type(module).__name__ for name, module in consumers.items())
            text = f'{found} passed to {names}'
        runner.logger.info(f'{type(self).__name__}: {text}.')

    def pass_on(self, consumers: dict[str, nn.Module], dataset) -> str:
        """Pass the fact to modules, by their names; return it in words for the log."""
        raise NotImplementedError


@HOOKS.register_module()
class ClassCountsHook(_TrainingSetHook):
    """Passes the class counts of the training set to losses.

    For losses with ``prior='counts'`` or ``class_weight='auto'``, and losses of
    :class:`mmrank.losses.ClassCountLoss`, such as ``mmrank.LDAMLoss``. It counts what a wrapper of
    the data set shows: items, which may have several classes or none, or boxes.
    """

    fact = 'class_counts'

    def pass_on(self, consumers: dict[str, nn.Module], dataset) -> str:
        if not len(dataset):
            raise ValueError(f'{type(dataset).__name__} is empty')
        if 'instances' in dataset.get_data_info(0):
            boxes = [x for i in range(len(dataset)) for x in dataset.get_data_info(i)['instances']]
            found = [x['bbox_label'] for x in boxes if not x.get('ignore_flag')]
            labels = np.array(found, dtype=np.int64)
        else:
            labels = label_pairs(dataset)[1]
        if not labels.size:
            raise ValueError(f'no item of {type(dataset).__name__} has a class')
        size = len(class_names(dataset)) or int(labels.max()) + 1
        if labels.min() < 0 or labels.max() >= size:
            raise ValueError(
                f'{type(dataset).__name__} has labels from {labels.min()} to {labels.max()}, but '
                f"{size} classes; make its gt_label and metainfo['classes'] agree"
            )
        counts = np.bincount(labels, minlength=size)
        for name, module in consumers.items():
            # A loss with one class takes label 1 for its positives.
            is_binary = module.num_columns == 1 and len(counts) == 2
            own = counts[1:] if is_binary else counts
            if module.num_columns not in (None, len(own)):
                raise ValueError(
                    f'the training set has {len(own)} classes, but num_classes='
                    f'{module.num_columns} of {name}; set num_classes={len(own)} of head or loss'
                )
            module.set_class_counts(own.tolist(), len(dataset))
        return (
            f'{len(counts)} classes of {counts.min()} to {counts.max()} of {len(dataset)} samples'
        )


@HOOKS.register_module()
class PairCountsHook(_TrainingSetHook):
    """Passes the training pairs to ``mmrank.InBatchLoss``."""

    fact = 'pair_counts'

    def pass_on(self, consumers: dict[str, nn.Module], dataset) -> str:
        pairs = getattr(dataset, 'interactions', None)
        if pairs is None:
            raise TypeError(
                f'{type(dataset).__name__} has no positive pairs; set the training data set to '
                "type='mmrank.InteractionDataset', without a wrapper"
            )
        for module in consumers.values():
            module.set_pairs(pairs.rows, pairs.cols, pairs.shape)
        return f'{len(pairs.rows)} pairs of {pairs.shape[0]} x {pairs.shape[1]} entities'


@HOOKS.register_module()
class ClassPairsHook(_TrainingSetHook):
    """Passes image classes to ``mmrank.InBatchRetrievalHead``."""

    fact = 'class_labels'

    def pass_on(self, consumers: dict[str, nn.Module], dataset) -> str:
        labels = torch.from_numpy(class_labels(dataset))
        for module in consumers.values():
            module.set_class_labels(labels)
        return f'the classes of {len(labels)} images'


@HOOKS.register_module()
class DeferredReweightingHook(Hook):
    """Tells losses when to weight the classes.

    A representation is learnt with equal weights; then, at lower learning rates, rare classes are
    weighted up: calls ``start_reweighting`` of every module that has it, such as
    ``mmrank.LDAMLoss``. Source: Cao et al., Learning Imbalanced Datasets with
    Label-Distribution-Aware Margin Loss, NeurIPS 2019, algorithm 1: at 160 of 200 epochs.

    Args:
        begin: Epochs, or iterations, before the re-weighting starts, >= 0.
        by_epoch: Whether ``begin`` counts epochs.
    """

    def __init__(self, begin: int, by_epoch: bool = True) -> None:
        check_not_negative(begin=begin)
        self.begin = begin
        self.by_epoch = by_epoch
        self._has_begun = False

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        done = runner.epoch if self.by_epoch else runner.iter
        if self._has_begun or done < self.begin:
            return
        self._has_begun = True
        for name, module in modules_with(runner, 'start_reweighting').items():
            module.start_reweighting()
            runner.logger.info(f'DeferredReweightingHook: class weights enabled in {name}.')


@HOOKS.register_module()
class CosineBeta0Hook(Hook):
    """Lowers ``beta0`` of SogCLR and iSogCLR from 1 to the loss's ``beta0``, by a half cosine.

    ``beta0_t = beta0 + (1 - beta0) (1 + cos(pi t / decay)) / 2``: at first the batch counts alone,
    as what a moving average keeps is of weights that have moved far. Source: Wei et al., FastCLIP,
    2024, arXiv 2407.01445, which lowers it to 0.2 within half of the epochs.

    Args:
        decay: Epochs, or iterations, from 1 to ``beta0``, >= 1.
        by_epoch: Whether it counts epochs; then an epoch has one value.
    """

    def __init__(self, decay: int, by_epoch: bool = True) -> None:
        check_count('decay', decay)
        self.decay = decay
        self.by_epoch = by_epoch
        self._least: dict[SampleLogMean, float] = {}

    def before_train(self, runner) -> None:
        modules = unwrap_model(runner.model).modules()
        self._least = {x: x.beta0 for x in modules if isinstance(x, SampleLogMean)}
        if not self._least:
            raise UserError(
                'CosineBeta0Hook is in custom_hooks, but the model has no moving average of '
                'samples. Fix: take the hook out, or train with mmrank.SogCLRLoss or iSogCLR'
            )

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        done = min((runner.epoch if self.by_epoch else runner.iter) / self.decay, 1)
        for state, least in self._least.items():
            state.beta0 = least + (1 - least) * (1 + math.cos(math.pi * done)) / 2

    def after_train(self, runner) -> None:
        for state, least in self._least.items():
            state.beta0 = least
