"""A two-tower training that stops after any step, and the objective that its loss minimises."""

import copy
import tempfile

import torch
from mmengine.config import Config
from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import Runner
from mmengine.visualization import Visualizer
from torch import Tensor, nn

from mmrank.datasets import InteractionDataset, TopKDataset
from mmrank.losses.two_tower.in_batch import in_batch_embedding_loss
from mmrank.registry import DATASETS, METRICS


class TwoTowerData:
    """Training pairs, held-out pairs and metric of a ``mmrank.TwoTower`` config, read once."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.train = DATASETS.build(cfg.train_dataloader.dataset)
        held_out = DATASETS.build(cfg.val_dataloader.dataset)
        for dataset, wanted in ((self.train, InteractionDataset), (held_out, TopKDataset)):
            if not isinstance(dataset, wanted):
                raise TypeError(
                    f'the config has a {type(dataset).__name__} where a {wanted.__name__} is '
                    'required; use a config of configs/in_batch'
                )
        self._test = held_out.__getitems__(range(len(held_out)))
        self.metric = METRICS.build(cfg.val_evaluator)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.train.interactions.shape

    @property
    def num_positives(self) -> int:
        """``|O|``."""
        return len(self.train.interactions)

    def sampled_as(self, sampling: str) -> InteractionDataset:
        """The training pairs for another sampler, not read again."""
        dataset = copy.copy(self.train)
        dataset.sampling = sampling
        return dataset

    def batch_size(self, batch_ratio: float) -> int:
        """``|Ohat|`` of a batch ratio ``|Ohat|^2 / |O|^2``, at least 2."""
        return max(2, round(self.num_positives * batch_ratio**0.5))

    def all_pairs(self) -> dict:
        """The batch of all training pairs."""
        return self.sampled_as('in_batch').__getitems__(range(self.num_positives))

    @torch.no_grad()
    def evaluate(self, model) -> dict[str, float]:
        """Metrics of a two-tower model on the held-out pairs."""
        training = model.training
        model.eval()
        batch = model.data_preprocessor(self._test)
        results = model(mode='predict', **batch)
        model.train(training)
        self.metric.results.clear()
        self.metric.process(self._test, results)
        return self.metric.evaluate(len(results))


def emulated_omega(batch_size: int, num_positives: int) -> float:
    """``(|Ohat| - 1) / (|O| - 1)``, equations (18) and (36)."""
    return (batch_size - 1) / (num_positives - 1)


def full_form(mode: str, omega: float, batch_size: int, num_positives: int) -> tuple[str, float]:
    """Mode and omega whose loss of all pairs is the expected objective: appendix G.2."""
    if mode == 'sogram':
        return 'unbiased', 1.0
    if mode == 'pos_neg':
        return 'unbiased_omega', emulated_omega(batch_size, num_positives)
    if mode == 'in_batch':
        return 'in_batch_omega', emulated_omega(batch_size, num_positives)
    if mode == 'in_batch_omega':
        # Its batch's negatives have the weight 1 / ratio less.
        return mode, omega * emulated_omega(batch_size, num_positives)
    return mode, omega


class ExpectedObjective(nn.Module):
    """Mean of the losses over all batches of ``batch_size``, from all training pairs."""

    def __init__(self, loss, batch_size: int, pairs: dict) -> None:
        super().__init__()
        self._loss, self._pairs = loss, pairs
        self.mode, self.omega = full_form(
            loss.mode, loss.omega, batch_size, loss.counts.num_positives
        )

    def forward(self, model) -> Tensor:
        """Value at the weights of a two-tower model, differentiable once."""
        counts, pairs = self._loss.counts, self._pairs
        numbers = counts.row_counts, counts.col_counts, counts.num_positives
        places = {key: pairs[key] for key in ('left_index', 'right_index')}
        options = dict(mode=self.mode, omega=self.omega, shape=counts.shape, **places)
        return self._loss.loss_weight * in_batch_embedding_loss(
            *(model.left(pairs['left']), model.right(pairs['right'])),
            *(pairs['rows'], pairs['cols'], *numbers),
            pointwise=self._loss.pointwise,
            **options,
        )

    @torch.no_grad()
    def value(self, model) -> float:
        """Value as a number."""
        return float(self(model))


_DEFAULT_HOOKS = (
    *('runtime_info', 'timer', 'sampler_seed', 'logger'),
    *('param_scheduler', 'checkpoint'),
)


class _QuietRunner(Runner):
    """A Runner that writes no file; a thousand of them share one logger, which mmengine keeps."""

    def build_logger(self, log_level='ERROR', **kwargs) -> MMLogger:
        if MMLogger.check_instance_created('in_batch_study'):
            return MMLogger.get_instance('in_batch_study')
        return MMLogger.get_instance('in_batch_study', log_level=log_level)

    def build_message_hub(self, message_hub=None) -> MessageHub:
        return MessageHub.get_instance('in_batch_study')

    def dump_config(self) -> None:
        """Write nothing."""


class StepwiseTraining:
    """Trains a config's model with its loss, sampler and optimiser."""

    def __init__(
        self,
        data: TwoTowerData,
        loss: dict | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        seed: int = 0,
        device: str = 'cpu',
        num_uniform: int = 0,
    ) -> None:
        self._data = data
        cfg = copy.deepcopy(data.cfg)
        if loss is not None:
            cfg.model['loss'] = loss
        if lr is not None:
            cfg.optim_wrapper.optimizer['lr'] = lr
        sampler = dict(
            cfg.train_dataloader.sampler, infinite=True, seed=seed, num_uniform=num_uniform
        )
        if batch_size is not None:
            sampler['batch_size'] = batch_size
        self.batch_size = sampler['batch_size']
        is_sogram = cfg.model.loss.get('mode') == 'sogram'
        loader = dict(
            cfg.train_dataloader,
            # Sogram draws other pairs for the negatives, as many.
            batch_size=self.batch_size * (2 if is_sogram else 1) + num_uniform,
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
            pairs = self._data.all_pairs() if all_pairs is None else all_pairs
            self._objective = self._objective_of(self.batch_size, pairs)
        return self._objective.value(self.model)

    def full_objective(self, all_pairs: dict) -> ExpectedObjective:
        """The loss of all pairs as one batch."""
        return self._objective_of(self.model.pair_loss.counts.num_positives, all_pairs)

    def _objective_of(self, size: int, all_pairs: dict) -> ExpectedObjective:
        pairs = self.model.data_preprocessor(all_pairs)
        return ExpectedObjective(self.model.pair_loss, size, pairs)
