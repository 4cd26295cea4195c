"""Hooks that refuse data sets which a training cannot use."""

from collections.abc import Iterator

from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from torch.utils.data import ConcatDataset

from mmrank.datasets.checks.label_check import check_labels
from mmrank.datasets.one_size import IndexedConcatDataset
from mmrank.engine.runners import unwrap_model
from mmrank.errors import UserError
from mmrank.registry import HOOKS

#: What a checkpoint keeps of the index of data in shards.
DIGEST_KEY = 'sample_index'


@HOOKS.register_module()
class LabelCheckHook(Hook):
    """Checks the labels of every split once, before it is first used.

    For any data set of mmpretrain's kind; loads no image. See
    :func:`mmrank.datasets.checks.label_check.check_labels`.

    Args:
        need_positives: Whether a class without a positive is an error, as for average precision.

    Raises:
        UserError: Before training, validation or test.
    """

    def __init__(self, need_positives: bool = True) -> None:
        self.need_positives = need_positives
        self._checked: set[str] = set()

    def _check(self, split: str, loop) -> None:
        # All ranks have the same labels; only the first one reports.
        if loop is None or split in self._checked or not is_main_process():
            return
        self._checked.add(split)
        check_labels(loop.dataloader.dataset, split, self.need_positives)

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
    (``mmrank.SogCLRLoss``, ``mmrank.ISogCLRLoss``, ...). It loads no image. The digest of the index
    of data in shards (``mmrank.ShardedCaptions``, ``mmrank.StreamedCaptions``) goes into each
    checkpoint.

    Raises:
        ValueError: Before training, if two samples have one index, as in mmengine's
            ``ConcatDataset``; if samples are not counted from 0; or if ``num_samples`` of a loss is
            not their number.
        UserError: Before training, if a batch is a single sample, or a training that resumes had
            another index.
    """

    def __init__(self) -> None:
        self._resumed: str | None = None

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        self._resumed = checkpoint.get(DIGEST_KEY)

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        digest = ' '.join(_digests(runner.train_loop.dataloader.dataset))
        if digest:
            checkpoint[DIGEST_KEY] = digest

    def before_train(self, runner) -> None:
        loader = runner.train_loop.dataloader
        digest = ' '.join(_digests(loader.dataset))
        if digest and runner.iter > 0:
            self._check_digest(runner, digest)
        keepers = {
            name: module
            for name, module in unwrap_model(runner.model).named_modules()
            if getattr(module, 'keeps_samples', False)
        }
        if not keepers:
            runner.logger.info('SampleIndexHook: no loss has sample state.')
            return
        size = count_indices(loader.dataset)
        for name, module in keepers.items():
            if module.num_samples != size:
                raise ValueError(
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

    def _check_digest(self, runner, digest: str) -> None:
        if not self._resumed:
            runner.logger.warning(
                'The checkpoint does not tell the index of its samples: it is not compared with '
                'this training set.'
            )
        elif digest != self._resumed:
            raise UserError(
                'the samples of the training set have other numbers than in the checkpoint: '
                f'the digest of its index is {digest}, then {self._resumed}. State per sample '
                'would go to other samples. Fix: resume with the shards, their index and the '
                'unit of before; or restart, with load_from'
            )


def _digests(dataset) -> Iterator[str]:
    """Digests of the indices of data in shards, also within wrappers and joined parts."""
    found = getattr(dataset, 'index_digest', None)
    if found is not None:
        yield found
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _digests(part)
    elif hasattr(dataset, 'dataset'):
        yield from _digests(dataset.dataset)


def count_indices(dataset) -> int:
    """Number of different ``sample_idx`` of a data set, looking into wrappers with one ``dataset``.

    Raises:
        ValueError: If indices collide or do not count from 0.
    """
    while not isinstance(dataset, ConcatDataset) and getattr(dataset, 'dataset', None) is not None:
        dataset = dataset.dataset
    if isinstance(dataset, ConcatDataset) and not isinstance(dataset, IndexedConcatDataset):
        if len(dataset.datasets) == 1:
            return count_indices(dataset.datasets[0])
        parts = [len(part) for part in dataset.datasets]
        raise ValueError(
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
            raise ValueError(
                f'sample {position} of {type(dataset).__name__} has sample_idx={index}; state per '
                f'sample needs the samples counted from 0 to {size - 1}. Fix: let the data set set '
                'sample_idx to the position'
            )
    return size
