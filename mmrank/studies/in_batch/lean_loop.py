"""A training loop with what a Runner computes, and nothing beside it."""

import copy

import torch
from mmengine.registry import OPTIMIZERS

from mmrank.registry import DATA_SAMPLERS, MODELS
from mmrank.studies.in_batch.data import TwoTowerData
from mmrank.studies.in_batch.expected_objective import ExpectedObjective


class LeanLoop:
    """Trains a config's model with its loss, sampler and optimiser.

    The weights are those that mmengine's Runner reaches on one process with
    ``randomness.seed`` and the seed of the sampler set; hooks, logs and
    checkpoints, which cost milliseconds a step, are left out.

    Args:
        data: The data of the config, shared by loops.
        loss: Config of the loss in the place of the config's, or None.
        batch_size: ``|Ohat|`` in the place of the config's, or None.
        lr: Learning rate in the place of the config's, or None.
        seed: Seed of the weights and of the sampler.
        device: Where to train.

    Attributes:
        model: The ``mmrank.TwoTower``.
        batch_size: ``|Ohat|``.
        steps_per_epoch: Steps in an epoch.
        step: Steps done.
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
        cfg = data.cfg
        # Shared by loops, while each may have a loss of its own.
        model = copy.deepcopy(cfg.model)
        if loss is not None:
            model['loss'] = loss
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = MODELS.build(model).to(device)
        sogram = getattr(self.model.pair_loss, 'mode', '') == 'sogram'
        self._dataset = data.sampled_as('sogram' if sogram else 'in_batch')
        pairs = self._dataset.interactions
        self.model.pair_loss.set_pairs(
            torch.from_numpy(pairs.rows),
            torch.from_numpy(pairs.cols),
            pairs.shape,
        )
        sampler = dict(cfg.train_dataloader.sampler, infinite=True, seed=seed)
        if batch_size is not None:
            sampler['batch_size'] = batch_size
        self._sampler = DATA_SAMPLERS.build(
            sampler, default_args=dict(dataset=self._dataset)
        )
        self.batch_size = self._sampler.batch_size
        self.steps_per_epoch = self._sampler.num_batches
        optimizer = dict(cfg.optim_wrapper.optimizer)
        if lr is not None:
            optimizer['lr'] = lr
        self._optimizer = OPTIMIZERS.build(
            optimizer, default_args=dict(params=self.model.parameters())
        )
        self.step = 0
        self._objective = None
        self.model.train()

    def train(self, steps: int) -> None:
        """Continue for some steps."""
        for _ in range(steps):
            indices = self._sampler.rank_batch(self.step)
            batch = self._dataset.__getitems__(indices)
            batch = self.model.data_preprocessor(batch, training=True)
            self._optimizer.zero_grad()
            self.model(mode='loss', **batch)['loss'].backward()
            self._optimizer.step()
            self.step += 1

    def evaluate(self) -> dict[str, float]:
        """Metrics on the held-out pairs."""
        return self._data.evaluate(self.model)

    def objective(self, all_pairs: dict | None = None) -> float:
        """Expected objective of the loss at the present weights.

        Args:
            all_pairs: The batch of all training pairs, where loops share it.
        """
        if self._objective is None:
            if all_pairs is None:
                all_pairs = self._data.all_pairs()
            self._objective = self._objective_of(self.batch_size, all_pairs)
        return self._objective.value(self.model)

    def full_objective(self, all_pairs: dict) -> ExpectedObjective:
        """The loss of all pairs as one batch.

        Args:
            all_pairs: The batch of all training pairs.
        """
        size = self.model.pair_loss.counts.num_positives
        return self._objective_of(size, all_pairs)

    def _objective_of(self, size: int, all_pairs: dict) -> ExpectedObjective:
        pairs = self.model.data_preprocessor(all_pairs)
        return ExpectedObjective(self.model.pair_loss, size, pairs)
