"""Tells losses the positive pairs of the training set."""

from mmengine.hooks import Hook

from mmrank.datasets.samplers.batch_stream import check_loader
from mmrank.engine.unwrap_model import unwrap_model
from mmrank.losses.protocols import TakesPairCounts
from mmrank.registry import HOOKS


@HOOKS.register_module()
class PairCountsHook(Hook):
    """Passes the counts of the training pairs to ``mmrank.InBatchLoss``.

    Before training, calls ``set_pairs`` of every module of the model with a true
    ``wants_pair_counts``. The counts come from the data set, so they are not part of a checkpoint:
    keep the hook when a run is resumed.

    Raises:
        UserError: Before training, if the data loader has another batch size than its sampler.
        TypeError: Before training, if the data set has no pairs.
        ValueError: Before training, if in-batch sampling cannot use the
            pairs; see :meth:`mmrank.state.PairCounts.set_pairs`.
    """

    def before_train(self, runner) -> None:
        """Count the pairs and pass the counts on."""
        check_loader(runner.train_loop.dataloader)
        model = unwrap_model(runner.model)
        told = [
            module
            for module in model.modules()
            if isinstance(module, TakesPairCounts) and module.wants_pair_counts
        ]
        if not told:
            runner.logger.info('PairCountsHook: no loss requires the pairs.')
            return
        dataset = runner.train_loop.dataloader.dataset
        pairs = getattr(dataset, 'interactions', None)
        if pairs is None:
            raise TypeError(
                f'{type(dataset).__name__} has no positive pairs; set the '
                "training data set to type='mmrank.InteractionDataset', "
                'without a wrapper'
            )
        for module in told:
            module.set_pairs(pairs.rows, pairs.cols, pairs.shape)
        runner.logger.info(
            f'PairCountsHook: {len(pairs.rows)} pairs of {pairs.shape[0]} x '
            f'{pairs.shape[1]} entities passed to {len(told)} losses.'
        )
