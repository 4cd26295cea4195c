"""Tells losses the positive pairs of the training set."""

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from mmrank.registry import HOOKS


@HOOKS.register_module()
class PairCountsHook(Hook):
    """Gives ``mmrank.InBatchLoss`` the counts of the training pairs.

    Before training every module of the model that says ``wants_pair_counts``
    is told by ``set_pairs``. The counts come from the data set, so they are
    not part of a checkpoint: keep the hook when a run is resumed.

    Raises:
        TypeError: Before training, if the data set has no pairs.
        ValueError: Before training, if they are no pairs that in-batch
            sampling can do with; see :meth:`mmrank.state.PairCounts.\
set_pairs`.
    """

    def before_train(self, runner) -> None:
        """Count and tell."""
        model = runner.model
        model = model.module if is_model_wrapper(model) else model
        told = [
            module
            for module in model.modules()
            if getattr(module, 'wants_pair_counts', False)
        ]
        if not told:
            runner.logger.info('PairCountsHook: no loss asks for the pairs.')
            return
        dataset = runner.train_loop.dataloader.dataset
        pairs = getattr(dataset, 'interactions', None)
        if pairs is None:
            raise TypeError(
                f'{type(dataset).__name__} has no positive pairs; train on '
                "type='mmrank.InteractionDataset', without a wrapper"
            )
        for module in told:
            module.set_pairs(pairs.rows, pairs.cols, pairs.shape)
        runner.logger.info(
            f'PairCountsHook: {len(pairs.rows)} pairs of {pairs.shape[0]} x '
            f'{pairs.shape[1]} entities told to {len(told)} losses.'
        )
