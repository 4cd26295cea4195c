"""Tells heads the classes of the training set, which define its pairs."""

import torch
from mmengine.hooks import Hook

from mmrank.datasets.samplers.batch_stream import check_loader
from mmrank.datasets.samplers.labels import class_labels
from mmrank.engine.unwrap_model import unwrap_model
from mmrank.losses.protocols import TakesClassLabels
from mmrank.registry import HOOKS


@HOOKS.register_module()
class ClassPairsHook(Hook):
    """Passes the image classes to ``mmrank.InBatchRetrievalHead``.

    Before training, calls ``set_class_labels`` of every module of the model with a true
    ``wants_class_labels``. The classes come from the data set, so they are not part of a
    checkpoint: keep the hook when a run is resumed.

    Raises:
        UserError: Before training, if the data loader has another batch size than its sampler.
        TypeError: Before training, if the classes are unknown.
        ValueError: Before training, if no class has two images.
    """

    def before_train(self, runner) -> None:
        """Look up the classes and pass them on."""
        check_loader(runner.train_loop.dataloader)
        model = unwrap_model(runner.model)
        told = [
            module
            for module in model.modules()
            if isinstance(module, TakesClassLabels) and module.wants_class_labels
        ]
        if not told:
            runner.logger.info('ClassPairsHook: no head requires classes.')
            return
        labels = torch.from_numpy(class_labels(runner.train_loop.dataloader.dataset))
        for module in told:
            module.set_class_labels(labels)
        runner.logger.info(
            f'ClassPairsHook: the classes of {len(labels)} images passed to {len(told)} heads.'
        )
