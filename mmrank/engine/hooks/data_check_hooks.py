"""Hooks that refuse data sets and settings which a training cannot use."""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from inspect import signature
from itertools import chain
from typing import Any

from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import CheckpointHook, EarlyStoppingHook, Hook
from torch.utils.data import ConcatDataset

from mmrank.annotations.images import refuse_other_size
from mmrank.datasets.batch_stream import check_loader
from mmrank.datasets.labels import check_labels
from mmrank.datasets.one_size import IndexedConcatDataset
from mmrank.engine.runners import modules_with
from mmrank.errors import UserError
from mmrank.files import check_output
from mmrank.registry import HOOKS

#: Settings of metrics that name files, and what is added.
_METRIC_FILES = {'outfile_prefix': '.bbox.json', 'out_file': ''}
# More is better for a metric with such a name. mmengine leaves the list to those who add metrics.
for _hook in (CheckpointHook, EarlyStoppingHook):
    _hook._default_greater_keys = [*_hook._default_greater_keys, 'recall', '/f1', '_f1']


@HOOKS.register_module()
class LabelCheckHook(Hook):
    """Checks the labels of every split once, before it is first used.

    For any data set of mmpretrain's kind; loads no image. A class without a positive or a negative
    is an error, too: its average precision is undefined. See
    :func:`mmrank.datasets.labels.check_labels`.
    """

    def __init__(self) -> None:
        self._checked: set[str] = set()

    def _check(self, split: str, loop) -> None:
        # All ranks have the same labels; only the first one reports.
        if loop is None or split in self._checked or not is_main_process():
            return
        self._checked.add(split)
        check_labels(loop.dataloader.dataset, split)

    def before_train(self, runner) -> None:
        self._check('train', runner.train_loop)
        self._check('val', runner.val_loop)

    def before_val(self, runner) -> None:
        self._check('val', runner.val_loop)

    def before_test(self, runner) -> None:
        self._check('test', runner.test_loop)


@HOOKS.register_module()
class SampleIndexHook(Hook):
    """Refuses to train where samples and their state would not match.

    Before training it looks at every loss of the model that keeps state per sample
    (``mmrank.SogCLRLoss``, ``mmrank.ISogCLRLoss``, ...): no two samples may have one index, as in
    mmengine's ``ConcatDataset``, they count from 0, ``num_samples`` of the loss is their number,
    and a batch has several. It loads no image.
    """

    def before_train(self, runner) -> None:
        loader = runner.train_loop.dataloader
        keepers = modules_with(runner, 'keeps_samples')
        if not keepers:
            runner.logger.info('SampleIndexHook: no loss has sample state.')
            return
        size = _count_indices(loader.dataset)
        for name, module in keepers.items():
            if module.num_samples != size:
                raise UserError(
                    f'{name} ({type(module).__name__}) keeps state for '
                    f'num_samples={module.num_samples}, but the training set has {size} samples. '
                    f'Fix: set num_samples={size}; if the data set changed since the checkpoint '
                    'was saved, also load_state=False, or train on the old one'
                )
        if loader.batch_size == 1 and get_world_size() == 1:
            raise UserError(
                'train_dataloader.batch_size=1: the negatives of a sample are the others of its '
                f'batch, so {", ".join(keepers)} learns nothing. Fix: train_dataloader.batch_size '
                'of at least 2; the papers take 256'
            )


class StartCheckHook(Hook):
    """Refuses a training that would learn nothing, or fail with its first results.

    The tools add it; no config needs to. It looks for a batch, a step, a rate and a weight to
    learn, and for the metrics of ``save_best`` and of early stopping: before training where the
    names are known, else after the first validation. An image of another size than its annotations
    were made for is refused as it is loaded.
    """

    priority = 'VERY_HIGH'  # The CheckpointHook fails on such a metric

    def before_train(self, runner) -> None:
        loop = runner.train_loop
        loader = loop.dataloader
        check_loader(loader)
        for is_wrong, message, fix in _start_mistakes(runner, loop, loader):
            if is_wrong:
                raise UserError(message, fix)
        _check_pipelines(loader.dataset, 'train')
        metrics = [] if runner.val_loop is None else runner.val_loop.evaluator.metrics
        _check_files(metrics)
        known_to_save = signature(runner.save_checkpoint).parameters
        for hook in runner.hooks:
            kind = type(hook)
            given = hook.args if isinstance(hook, CheckpointHook) else {}
            for name in given.keys() - known_to_save.keys():
                known = [*signature(CheckpointHook).parameters, *signature(kind).parameters]
                close = get_close_matches(name, known, 1) or ['another name']
                text = f'default_hooks.checkpoint.{name}: {kind.__name__} has no such setting'
                raise UserError(text, close[0])
        names = [*map(_metric_names, metrics)]
        if runner.val_loop is None or (names and all(names)):
            _check_monitors(runner, [*chain(*names)])

    def before_val(self, runner) -> None:
        _check_pipelines(runner.val_dataloader.dataset, 'val')

    def before_test(self, runner) -> None:
        _check_pipelines(runner.test_dataloader.dataset, 'test')
        _check_files(runner.test_evaluator.metrics)

    def after_val_epoch(self, runner, metrics: Mapping | None = None) -> None:
        if metrics:
            _check_monitors(runner, metrics)


def _start_mistakes(runner, loop, loader) -> Iterator[tuple[bool, str, str]]:
    """Yield whether something is wrong, what, and what to do."""
    if hasattr(loader.dataset, '__len__'):  # a stream has no length
        yield (
            not len(loader),
            f'train_dataloader has no batch: {len(loader.dataset)} samples, batch_size='
            f'{loader.batch_size} and drop_last={loader.drop_last}',
            'a smaller train_dataloader.batch_size, or drop_last=False',
        )
    for name in ('max_epochs', 'max_iters'):
        value = getattr(loop, name)
        yield value < 1, f'train_cfg.{name}={value}: nothing is trained', 'at least 1'
    interval = 1 if runner.val_loop is None else getattr(loop, 'val_interval', 1)
    yield (
        interval < 1,
        f'train_cfg.val_interval={interval}: the validation would never be due',
        'at least 1; to validate never, --no-validate',
    )
    for hook in runner.hooks:
        interval = getattr(hook, 'interval', 1)
        name = type(hook).__name__
        fix = 'a whole number of epochs or iterations'
        yield isinstance(interval, str), f'interval={interval!r} of {name} is a text', fix
        yield (
            isinstance(hook, CheckpointHook) and interval == 0,
            'default_hooks.checkpoint.interval=0 would save no checkpoint',
            'at least 1; -1 if none is wanted',
        )
    groups = runner.optim_wrapper.param_groups
    if isinstance(groups, Mapping):  # of several optimisers
        groups = chain(*groups.values())
    yield (
        not any(group.get('initial_lr', group['lr']) for group in groups),
        'optim_wrapper.optimizer.lr=0, of every weight: nothing is learned',
        'lr > 0',
    )
    yield (
        not any(weight.requires_grad for weight in runner.model.parameters()),
        'no weight of the model is trained: all are frozen',
        'fewer frozen_stages, or a head that learns',
    )


def _check_files(metrics) -> None:
    """Refuse files of metrics that cannot be written, before the work that leads to them."""
    if is_main_process():
        for metric in metrics:
            for name, ending in _METRIC_FILES.items():
                if isinstance(path := getattr(metric, name, None), str):
                    check_output(path + ending)


def _check_pipelines(dataset, split: str) -> None:
    """Refuse a pipeline that packs no ``inputs``; let those of images compare their sizes."""
    covered = ()
    for place, part in _with_pipelines(dataset, f'{split}_dataloader.dataset'):
        steps = getattr(part.pipeline, 'transforms', part.pipeline)
        last = next((step for step in reversed(steps) if step is not refuse_other_size), None)
        loading = [i for i, step in enumerate(steps) if type(step).__name__ == 'LoadImageFromFile']
        if loading and refuse_other_size not in steps:
            steps.insert(loading[0] + 1, refuse_other_size)
        # A wrapper that has a pipeline itself makes the samples of what is in it.
        if last is None or place.startswith(covered):
            continue
        covered += (f'{place}.',)
        for branch in getattr(last, 'subroutines', ())[:1]:  # of test-time augmentation
            last = branch.transforms[-1]
        name = type(last).__name__
        is_known = type(last).__module__.startswith(('mmcv.', 'mmdet.', 'mmpretrain.'))
        if is_known and 'Pack' not in name:
            what = f'{place}.pipeline ends with {name}, and nothing packs inputs'
            fix = "end it with dict(type='PackDetInputs'), in mmpretrain 'PackInputs'"
            raise UserError(what, fix)


def _with_pipelines(dataset, place: str) -> Iterator[tuple[str, Any]]:
    """Place of each data set with a pipeline, and the data set; wrappers before their parts."""
    if getattr(dataset, 'pipeline', None) is not None:
        yield place, dataset
    for index, part in enumerate(getattr(dataset, 'datasets', ())):
        yield from _with_pipelines(part, f'{place}.datasets.{index}')
    if getattr(dataset, 'dataset', None) is not None:
        yield from _with_pipelines(dataset.dataset, f'{place}.dataset')


def _metric_names(metric) -> list[str]:
    """What a metric of COCO is going to report; none where it is not known before."""
    if type(metric).__name__ != 'CocoMetric' or not {*metric.metrics} <= {'bbox', 'segm'}:
        return []
    items = metric.metric_items or ['mAP', *(f'mAP_{x}' for x in ('50', '75', 's', 'm', 'l'))]
    names = [f'{kind}_{item}' for kind in metric.metrics for item in items]
    classes = (metric.dataset_meta or {}).get('classes', ()) if metric.classwise else ()
    names += [f'{name}_precision' for name in classes]
    more = getattr(metric, 'figure_names', [])  # of mmrank's
    for prefix in ['' if kind == 'bbox' else f'{kind}_' for kind in metric.metrics if more]:
        names += [f'{prefix}{figure}' for figure in more]
        names += [f'{prefix}{name}_{figure}' for name in classes for figure in ('mAP_50', *more)]
    return [f'{metric.prefix}/{name}' for name in names]


def _check_monitors(runner, names: Collection[str]) -> None:
    """Refuse hooks that wait for a metric which the validation does not report."""
    for hook in runner.hooks:
        wanted = {}
        if isinstance(hook, CheckpointHook) and hook.save_best and names:
            key = 'default_hooks.checkpoint.save_best'
            wanted = {name: key for name in hook.key_indicators if name != 'auto'}
        elif isinstance(hook, EarlyStoppingHook):
            wanted = {hook.monitor: 'EarlyStoppingHook.monitor'}
        for name, key in wanted.items():
            if name not in names:
                fix = 'a validation'
                if names:
                    fix = f'one of {", ".join(sorted(map(str, names)))}'
                    fix += "; also rule='greater' or 'less' where mmengine does not know the name"
                raise UserError(f'{key}={name!r} is not a metric of the validation', fix)


def _count_indices(dataset) -> int:
    """Number of different ``sample_idx`` of a data set, also in wrappers."""
    while not isinstance(dataset, ConcatDataset) and getattr(dataset, 'dataset', None) is not None:
        dataset = dataset.dataset
    if isinstance(dataset, ConcatDataset) and not isinstance(dataset, IndexedConcatDataset):
        if len(dataset.datasets) == 1:
            return _count_indices(dataset.datasets[0])
        parts = [len(part) for part in dataset.datasets]
        raise UserError(
            f'{type(dataset).__name__} joins {len(parts)} data sets of {parts} samples, each '
            'counted from 0: samples of different parts would share the state of one sample_idx. '
            "Fix: type='mmrank.IndexedConcatDataset' in its place"
        )
    size = len(dataset)
    if not hasattr(dataset, 'get_data_info') or not size:
        return size
    for position in (0, size - 1):
        index = dataset.get_data_info(position).get('sample_idx', position)
        if index != position:
            raise UserError(
                f'sample {position} of {type(dataset).__name__} has sample_idx={index}; state per '
                f'sample needs the samples counted from 0 to {size - 1}. Fix: let the data set set '
                'sample_idx to the position'
            )
    return size
