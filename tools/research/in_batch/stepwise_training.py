"""A training that stops after any step, by mmengine's loop."""

import copy
import tempfile

from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import Runner
from mmengine.visualization import Visualizer

from research.in_batch.data import TwoTowerData
from research.in_batch.expected_objective import ExpectedObjective

_DEFAULT_HOOKS = (
    'runtime_info',
    'timer',
    'sampler_seed',
    'logger',
    'param_scheduler',
    'checkpoint',
)


class _QuietRunner(Runner):
    """A Runner that writes no file.

    A study has a thousand of them in one process, and mmengine keeps the logger of each, with its
    open log file, until the process ends: they share one.
    """

    def build_logger(self, log_level='ERROR', **kwargs) -> MMLogger:
        if MMLogger.check_instance_created('in_batch_study'):
            return MMLogger.get_instance('in_batch_study')
        return MMLogger.get_instance('in_batch_study', log_level=log_level)

    def build_message_hub(self, message_hub=None) -> MessageHub:
        return MessageHub.get_instance('in_batch_study')

    def dump_config(self) -> None:
        """Write nothing."""


class StepwiseTraining:
    """Trains a config's model with its loss, sampler and optimiser.

    mmengine's IterBasedTrainLoop makes the steps, with its default hooks off. Objective and metrics
    are computed between steps, without an effect on the
    weights: they are those of ``tools/train.py`` with the same seeds.

    Args:
        data: The data of the config, shared by trainings.
        loss: Config of the loss that replaces the config's, or None.
        batch_size: ``|Ohat|`` that replaces the config's, or None.
        lr: Learning rate that replaces the config's, or None.
        seed: Seed of the weights and of the sampler.
        device: Where to train.

    Attributes:
        model: The ``mmrank.TwoTower``.
        batch_size: ``|Ohat|``.
        steps_per_epoch: Steps in an epoch.
    """

    def __init__(
        self,
        data: TwoTowerData,
        loss: dict | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        seed: int = 0,
        device: str = 'cpu',
    ) -> None:
        self._data = data
        cfg = copy.deepcopy(data.cfg)
        if loss is not None:
            cfg.model['loss'] = loss
        if lr is not None:
            cfg.optim_wrapper.optimizer['lr'] = lr
        sampler = dict(cfg.train_dataloader.sampler, infinite=True, seed=seed)
        if batch_size is not None:
            sampler['batch_size'] = batch_size
        self.batch_size = sampler['batch_size']
        is_sogram = cfg.model.loss.get('mode') == 'sogram'
        loader = dict(
            cfg.train_dataloader,
            # Sogram draws other pairs for the negatives, as many.
            batch_size=self.batch_size * (2 if is_sogram else 1),
            sampler=sampler,
            dataset=data.sampled_as('sogram' if is_sogram else 'in_batch'),
        )
        with tempfile.TemporaryDirectory() as folder:
            runner = _QuietRunner(
                model=cfg.model,
                work_dir=folder,
                train_dataloader=loader,
                # Not read: the steps are called one by one.
                train_cfg=dict(type='IterBasedTrainLoop', max_iters=1),
                optim_wrapper=cfg.optim_wrapper,
                default_hooks=dict.fromkeys(_DEFAULT_HOOKS),
                custom_hooks=[dict(type='mmrank.PairCountsHook')],
                log_level='ERROR',
                visualizer=Visualizer.get_instance('in_batch_study'),
                default_scope=cfg.default_scope,
                randomness=dict(seed=seed),
            )
        # mmengine selects the device itself.
        self.model = runner.model.to(device)
        runner.optim_wrapper = runner.build_optim_wrapper(cfg.optim_wrapper)
        self._loop = runner.train_loop
        self.steps_per_epoch = self._loop.dataloader.sampler.num_batches
        runner.call_hook('before_train')
        self._objective = None
        self.model.train()

    @property
    def step(self) -> int:
        """Steps done."""
        return self._loop.iter

    def train(self, steps: int) -> None:
        """Continue for some steps."""
        for _ in range(steps):
            self._loop.run_iter(next(self._loop.dataloader_iterator))

    def evaluate(self) -> dict[str, float]:
        """Metrics on the held-out pairs."""
        return self._data.evaluate(self.model)

    def objective(self, all_pairs: dict | None = None) -> float:
        """Expected objective of the loss at the present weights."""
        if self._objective is None:
            if all_pairs is None:
                all_pairs = self._data.all_pairs()
            self._objective = self._objective_of(self.batch_size, all_pairs)
        return self._objective.value(self.model)

    def full_objective(self, all_pairs: dict) -> ExpectedObjective:
        """The loss of all pairs as one batch."""
        size = self.model.pair_loss.counts.num_positives
        return self._objective_of(size, all_pairs)

    def _objective_of(self, size: int, all_pairs: dict) -> ExpectedObjective:
        pairs = self.model.data_preprocessor(all_pairs)
        return ExpectedObjective(self.model.pair_loss, size, pairs)
