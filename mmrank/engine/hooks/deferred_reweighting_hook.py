"""Starts the re-weighting of classes late in the training."""

from mmengine.hooks import Hook

from mmrank.engine.unwrap_model import unwrap_model
from mmrank.losses.protocols import Reweights
from mmrank.registry import HOOKS


@HOOKS.register_module()
class DeferredReweightingHook(Hook):
    """Tells losses when to weight the classes.

    First a representation is learnt with equal weights, then, at the lower learning rates, the rare
    classes are weighted up. Source: Cao et al., Learning Imbalanced Datasets with
    Label-Distribution-Aware Margin Loss, NeurIPS 2019, algorithm 1: at 160 of 200 epochs.

    Calls ``start_reweighting`` of every module that has it, such as ``mmrank.LDAMLoss``. Has no
    effect on other models, so a config with the hook works with every loss.

    Args:
        begin: Epochs, or iterations, before the re-weighting starts, >= 0.
        by_epoch: Whether ``begin`` counts epochs.

    Raises:
        ValueError: If ``begin`` is negative.
    """

    def __init__(self, begin: int, by_epoch: bool = True) -> None:
        if not begin >= 0:
            raise ValueError(f'begin must be >= 0, got {begin!r}')
        self.begin, self.by_epoch = begin, by_epoch
        self._told = False

    def before_train(self, runner) -> None:
        """Reset the state of an earlier training."""
        self._told = False

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        """Start the re-weighting once, at ``begin``."""
        done = runner.epoch if self.by_epoch else runner.iter
        if self._told or done < self.begin:
            return
        self._told = True
        model = unwrap_model(runner.model)
        told = [name for name, module in model.named_modules() if isinstance(module, Reweights)]
        for name in told:
            model.get_submodule(name).start_reweighting()
        if told:
            runner.logger.info(
                f'DeferredReweightingHook: class weights enabled in {", ".join(told)}.'
            )
