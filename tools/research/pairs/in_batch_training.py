"""How the paper on in-batch bias trains, for the plans of papers/in_batch.

Its appendix D searches the learning rate by training itself, and appendix G.2 takes L-BFGS. A
config has them by ``custom_imports = dict(imports=['tools.research.pairs.in_batch_training'])``.
"""

import copy
import math

import torch
from mmengine.hooks import Hook
from torch.utils.data import BatchSampler

from mmrank.datasets.interactions.interaction_dataset import entities
from mmrank.datasets.samplers import InBatchPairSampler
from mmrank.losses import InBatchLoss
from mmrank.models import TwoTower
from mmrank.registry import DATA_SAMPLERS, HOOKS, MODELS


class Objective:
    """The full objective that the batches of a two-tower model estimate, equations 5 to 19.

    Args:
        model: A ``mmrank.TwoTower`` with ``mmrank.InBatchLoss``.
        loader: Its training data.
    """

    def __init__(self, model, loader) -> None:
        pairs = loader.dataset.interactions
        size = loader.batch_sampler.sampler.batch_size
        loss = model.pair_loss
        biased = loss.mode in ('pos_neg', 'in_batch')
        self.loss = InBatchLoss(
            'popularity' if loss.mode in ('popularity', 'in_batch') else 'unbiased_omega',
            loss.pointwise,
            # Equation 18.
            omega=(size - 1) / (len(pairs) - 1) if biased else loss.omega,
        )
        self.loss.set_pairs(pairs.rows, pairs.cols, pairs.shape)
        m, n = (torch.arange(size).numpy() for size in pairs.shape)
        rows = torch.from_numpy(pairs.rows)
        cols = torch.from_numpy(pairs.cols)
        batch = dict(left=entities(m, pairs.row_features), right=entities(n, None))
        self.model = model
        self.batch = model.data_preprocessor(dict(batch, rows=rows, cols=cols))
        self.loss.to(self.batch['rows'].device)

    @torch.no_grad()
    def __call__(self) -> float:
        """Its value at the weights of now."""
        rows = self.batch['rows']
        cols = self.batch['cols']
        left = self.model.left(self.batch['left'])
        right = self.model.right(self.batch['right'])
        return self.loss(left, right, rows, cols, rows, cols).item()


@HOOKS.register_module()
class UsableRateHook(Hook):
    """Finds the largest learning rate at which the objective does not diverge; appendix D.

    The training starts at ``first``. Some times an epoch it evaluates the objective and the test
    metrics. Where the objective is not finite, or above ``limit`` times its first value, it starts
    again with half of the rate. It ends when no metric has improved for some epochs. The best value
    of each metric is what a test reports.

    Args:
        first: Learning rate to begin with.
        limit: Share of the first objective from which on it diverges.
        patience: Epochs without an improvement of any metric.
        checks: Evaluations an epoch, at most one a step.
    """

    def __init__(
        self, first: float = 2.0**18, limit: float = 100, patience: int = 10, checks: int = 100
    ) -> None:
        self.limit = limit
        self.patience = patience
        self.checks = checks
        # Of the running attempt; a checkpoint has it.
        self.state = dict(rate=first, best={}, begin=0, improved=0)

    def before_train(self, runner) -> None:
        """Keep the weights to start again from."""
        self.objective = Objective(runner.model, runner.train_dataloader)
        self.interval = math.ceil(len(runner.train_dataloader) / self.checks)
        if 'start' not in self.state:
            start = runner.model.state_dict(), runner.optim_wrapper.state_dict()
            self.state.update(start=copy.deepcopy(start), objective=self.objective())
            self._start(runner, 0)

    def _start(self, runner, step: int) -> None:
        weights, optimizer = copy.deepcopy(self.state['start'])
        runner.model.load_state_dict(weights)
        runner.optim_wrapper.load_state_dict(optimizer)
        for group in runner.optim_wrapper.param_groups:
            group['lr'] = self.state['rate']
        self.state.update(best={}, begin=step, improved=step)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Evaluate, and start again, go on or end."""
        step = runner.iter + 1
        if (step - self.state['begin']) % self.interval:
            return
        value = self.objective()
        runner.message_hub.update_scalar('train/objective', value)
        if not value <= self.limit * self.state['objective']:
            runner.logger.info(f'Objective {value:.3g}: a rate of {self.state["rate"]:g} diverges.')
            self.state['rate'] /= 2
            self._start(runner, step)
            return
        metrics = runner.val_loop.run() if runner.val_loop else {}
        runner.model.train()
        best = self.state['best']
        for name, found in metrics.items():
            if found > best.get(name, -math.inf):
                best[name] = found
                self.state['improved'] = step
        waited = (step - self.state['improved']) / len(runner.train_dataloader)
        runner.train_loop.stop_training = waited >= self.patience

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Keep the attempt, so that an interrupted one goes on."""
        checkpoint['usable_rate'] = self.state

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Take the attempt of a checkpoint."""
        self.state = checkpoint.get('usable_rate', self.state)

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """Report the best of each metric."""
        metrics.update(self.state['best'])


@DATA_SAMPLERS.register_module()
class RatioPairSampler(InBatchPairSampler):
    """Batches of a share of the pairs.

    Args:
        dataset: A ``mmrank.InteractionDataset``.
        batch_ratio: ``|Ohat|^2 / |O|^2`` of equation 18.
        seed: Of the batches; the runner's.
    """

    def __init__(self, dataset, batch_ratio: float, seed: int | None = None) -> None:
        super().__init__(dataset, max(2, round(batch_ratio**0.5 * len(dataset))), seed)


@DATA_SAMPLERS.register_module()
class ShareBatchSampler(BatchSampler):
    """Batches as its sampler draws them; the ``batch_size`` of the data loader has no effect."""

    def __init__(self, sampler, batch_size: int) -> None:
        super().__init__(sampler, sampler.share, drop_last=True)


@MODELS.register_module()
class FullGradientTwoTower(TwoTower):
    """Two towers that L-BFGS trains: a step evaluates the loss of its batch several times."""

    def train_step(self, data: dict, optim_wrapper) -> dict[str, torch.Tensor]:
        """Make one step of the optimiser, which is all of its inner iterations."""
        data = self.data_preprocessor(data, True)

        def closure() -> torch.Tensor:
            optim_wrapper.zero_grad()
            loss = self(**data, mode='loss')['loss']
            loss.backward()
            return loss

        return dict(loss=optim_wrapper.optimizer.step(closure).detach())


@HOOKS.register_module()
class SmallGradientHook(Hook):
    """Ends a training whose gradient is as good as zero; appendix G.2.

    Args:
        norm: Euclidean norm of the gradient to end at.
    """

    def __init__(self, norm: float = 1e-7) -> None:
        self.norm = norm

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Compare the last gradient."""
        gradients = [x.grad.norm() for x in runner.model.parameters() if x.grad is not None]
        norm = torch.stack(gradients).norm().item()
        runner.message_hub.update_scalar('train/gradient_norm', norm)
        runner.train_loop.stop_training = norm <= self.norm
