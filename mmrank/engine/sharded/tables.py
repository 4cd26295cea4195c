"""Sharded tables of embeddings in mmengine's Runner."""

from collections.abc import Callable
from functools import partial
from typing import Any

from mmengine.dist import broadcast
from mmengine.hooks import Hook
from mmengine.model import MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from torch import Tensor, nn

from mmrank.distributed import is_sharded
from mmrank.engine.runners import unwrap_model
from mmrank.errors import UserError
from mmrank.models.two_tower.sharded_embedding_tower import shard_like, sharded_parameters
from mmrank.registry import HOOKS, MODEL_WRAPPERS


@MODEL_WRAPPERS.register_module()
class ShardedTablesParallel(MMDistributedDataParallel):
    """``MMDistributedDataParallel`` that does not average the gradients of sharded tables.

    ``kwargs`` are as for ``MMDistributedDataParallel``. A model without other weights is only
    passed on.
    """

    def __init__(self, module: nn.Module, **kwargs) -> None:
        sharded = sharded_parameters(module)
        self.has_others = any(
            parameter.requires_grad and name not in sharded
            for name, parameter in module.named_parameters()
        )
        if self.has_others:
            module._ddp_params_and_buffers_to_ignore = list(sharded)
            super().__init__(module=module, **kwargs)
        else:
            nn.Module.__init__(self)
            self.module = module

    def train_step(self, data: Any, optim_wrapper: OptimWrapper) -> dict:
        step = super().train_step if self.has_others else self.module.train_step
        return step(data, optim_wrapper)

    def forward(self, *args, **kwargs) -> Any:
        return (super().forward if self.has_others else self.module)(*args, **kwargs)

    def train(self, mode: bool = True) -> 'ShardedTablesParallel':
        return super().train(mode) if self.has_others else nn.Module.train(self, mode)


@HOOKS.register_module()
class ShardedTablesHook(Hook):
    """Checkpoints with whole tables, for any number of processes.

    mmengine saves in the first process alone, which has a part of the rows. Here all gather tables
    and optimiser state, one tensor after the other, in its host memory. A checkpoint is an
    ``mmrank.EmbeddingTower`` checkpoint.

    Raises:
        UserError: Before training, if the tables would be averaged, or there are several
            optimisers.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Tensor] = {}
        self._states: dict[int, dict[str, Tensor]] = {}

    def before_run(self, runner) -> None:
        if not sharded_parameters(unwrap_model(runner.model)):
            return
        if not isinstance(runner.model, ShardedTablesParallel):
            raise UserError(
                f'{type(runner.model).__name__} wraps a model with sharded tables, and averages '
                "other rows. Fix: model_wrapper_cfg=dict(type='mmrank.ShardedTablesParallel')"
            )
        runner.save_checkpoint = partial(self._save_whole, runner, runner.save_checkpoint)
        # Its own broadcasts all weights, of which each process has others.
        runner._init_model_weights = partial(_init_weights, runner)

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        states = checkpoint.get('optimizer', {}).get('state')
        if not states or not sharded_parameters(unwrap_model(runner.model)):
            return
        for number, parameter in enumerate(_parameters(runner)):
            if is_sharded(parameter) and number in states:
                tensors = {k: x for k, x in states[number].items() if isinstance(x, Tensor)}
                spread = {k: shard_like(x, parameter) for k, x in tensors.items()}
                states[number] = {**states[number], **spread}

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        checkpoint['state_dict'].update(self._tables)
        if 'optimizer' in checkpoint:
            for number, values in self._states.items():
                checkpoint['optimizer']['state'][number].update(values)

    def _save_whole(self, runner, save: Callable, *args, **kwargs) -> None:
        tables = sharded_parameters(unwrap_model(runner.model))
        self._tables = {name: _whole(table) for name, table in tables.items()}
        state = runner.optim_wrapper.optimizer.state
        for number, parameter in enumerate(_parameters(runner)):
            self._states[number] = {
                name: _whole(value)
                for name, value in state.get(parameter, {}).items()
                if isinstance(value, Tensor) and is_sharded(value)
            }
        try:
            save(*args, **kwargs)
        finally:
            self._tables, self._states = {}, {}


def _init_weights(runner) -> None:
    model = unwrap_model(runner.model)
    model.init_weights()
    for tensor in model.state_dict().values():
        if not is_sharded(tensor):
            broadcast(tensor)


def _parameters(runner) -> list[nn.Parameter]:
    """In the order in which the optimiser's state numbers them."""
    if not isinstance(runner.optim_wrapper, OptimWrapper):
        raise UserError(
            'sharded tables are saved with one optimiser only, and optim_wrapper is a '
            f'{type(runner.optim_wrapper).__name__}. Fix: one, with paramwise_cfg for other rates'
        )
    groups = runner.optim_wrapper.optimizer.param_groups
    return [parameter for group in groups for parameter in group['params']]


def _whole(tensor: Tensor) -> Tensor:
    """All rows, in the first process."""
    whole = tensor.detach().full_tensor()
    return whole.cpu() if tensor.device_mesh.get_rank() == 0 else whole[:0]
