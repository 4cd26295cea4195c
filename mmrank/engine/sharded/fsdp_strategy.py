"""Training with weights, gradients and optimiser states in shards."""

import copy
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mmengine
import torch
from mmengine._strategy import DDPStrategy
from mmengine.device import get_device
from mmengine.dist import all_reduce, get_world_size
from mmengine.model import BaseDataPreprocessor
from mmengine.optim import OptimWrapperDict
from mmengine.utils import get_git_hash
from torch import nn

from mmrank.distributed import is_sharded
from mmrank.engine.sharded.checkpoint import Path_, Placement, load_sharded, save_sharded, spread
from mmrank.errors import UserError
from mmrank.registry import STRATEGIES
from mmrank.state.sharding import ShardedState, save_shard

#: Parts of a checkpoint that a test does not need.
_TRAINING = ('optimizer', 'mmrank_previous_weights')


@STRATEGIES.register_module()
class FSDPStrategy(DDPStrategy):
    """Fully sharded data parallelism for ``FlexibleRunner``.

    It shards by ``torch.distributed.fsdp.fully_shard`` (FSDP2), on GPUs and, with gloo, on CPUs.
    The model keeps its class and its parameter names, so that hooks, optimiser wrappers and
    ``paramwise_cfg`` work as with ``DDPStrategy``. Parameters without a dimension, such as a
    learnable temperature, and buffers, with them the state of the losses but for
    ``storage='sharded'``, stay whole on each process.

    A checkpoint is a folder to which each process writes its part. It resumes on any number of
    processes, and so does a file that ``Runner`` saved.

    Args:
        wrap: Names of module classes that are sharded one by one, such as
            ``['TransformerEncoderLayer']``: only one is whole at a time. They must be entered
            through ``forward``.
        mixed_precision: Arguments of ``MixedPrecisionPolicy``, with dtypes by name:
            ``dict(param_dtype='bfloat16', reduce_dtype='float32')``.
        cpu_offload: Keep the shards in host memory.
        **kwargs: See ``mmengine._strategy.DDPStrategy``.

    Raises:
        UserError: There is one process without a launcher, torch is older than 2.6, or no module
            has a class of ``wrap``.

    Examples:
        >>> runner_type = 'mmrank.FlexibleRunner'
        >>> strategy = dict(type='mmrank.FSDPStrategy', wrap=['BasicBlock'])
    """

    #: The model's state has the keys and shapes of an unsharded one.
    has_global_state = True
    #: Asked by ``ShardedStateHook``: each process saves its rows itself.
    saves_shards = True

    def __init__(
        self,
        *,
        wrap: Sequence[str] = (),
        mixed_precision: dict | None = None,
        cpu_offload: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not torch.distributed.is_initialized():
            raise UserError(
                'FSDPStrategy shards over the processes of a launcher, and there is none. Fix: '
                "tools/dist_train.sh CONFIG 2, or strategy=dict(type='SingleDeviceStrategy')"
            )
        self.wrap = tuple(wrap)
        self.mixed_precision = dict(mixed_precision or {})
        self.cpu_offload = cpu_offload

    def _setup_distributed(
        self, launcher: str = 'pytorch', backend: str = 'nccl', **kwargs: Any
    ) -> None:
        """Start the process group; without a GPU by gloo."""
        if launcher == 'pytorch' and get_device() == 'cpu':
            torch.distributed.init_process_group('gloo', **kwargs)
        else:
            super()._setup_distributed(launcher, backend, **kwargs)

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        """Shard the model; it keeps its class."""
        model = self.convert_model(model)
        for module in model.modules():
            if isinstance(module, BaseDataPreprocessor | ShardedState):
                module.to(get_device())
        empty = _copy_with(model, partial(torch.empty_like, device='meta'))
        whole = {p for p in model.parameters() if p.dim() == 0}
        self._shard(model, whole)
        for parameter in whole:
            parameter.register_hook(partial(all_reduce_mean))
        # An EMAHook takes its average of the weights from such a copy.
        model.__dict__['__deepcopy__'] = partial(_sharded_copy, model, empty)
        return model

    def _shard(self, model: nn.Module, whole: set[nn.Parameter]) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import (
            CPUOffloadPolicy,
            MixedPrecisionPolicy,
            OffloadPolicy,
            fully_shard,
        )

        policy = {
            name: getattr(torch, value) if isinstance(value, str) else value
            for name, value in self.mixed_precision.items()
        }
        kind = torch.device(get_device()).type
        for parameter in whole:
            parameter.data = parameter.data.to(get_device())
        shard = partial(
            fully_shard,
            mesh=init_device_mesh(kind, (get_world_size(),)),
            # The root as well: a forward without a backward, of a validation or a hook, would leave
            # weights that the next one takes.
            reshard_after_forward=True,
            mp_policy=MixedPrecisionPolicy(**policy),
            offload_policy=(CPUOffloadPolicy() if self.cpu_offload else OffloadPolicy()),
            ignored_params=whole or None,
        )
        lacking = set(self.wrap) - {type(m).__name__ for m in model.modules()}
        if lacking:
            raise UserError(
                f'strategy.wrap: the model has no {", ".join(sorted(lacking))}'
                '. Fix: name classes of modules that it has'
            )
        for module in reversed(list(model.modules())):
            if type(module).__name__ in self.wrap and module is not model:
                shard(module)
        shard(model)

    def save_checkpoint(
        self,
        filename: str,
        *,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        extra_ckpt: dict | None = None,
        callback: Callable | None = None,
    ) -> None:
        """Write a folder; all processes call it. See ``DDPStrategy``."""
        checkpoint: dict[str, Any] = {'state_dict': self.model_state_dict()}
        if save_optimizer and hasattr(self, 'optim_wrapper'):
            checkpoint['optimizer'] = self.optim_state_dict()
        if save_param_scheduler and hasattr(self, 'param_schedulers'):
            checkpoint['param_schedulers'] = self.scheduler_state_dict()
        checkpoint.update(extra_ckpt or {})
        checkpoint.setdefault('meta', {}).update(
            seed=self.seed,
            time=time.strftime('%Y%m%d_%H%M%S', time.localtime()),
            mmengine=mmengine.__version__ + get_git_hash(),
        )
        if callback is not None:
            callback(checkpoint)
        save_sharded(checkpoint, filename, save_shard(self.model))

    def load_checkpoint(
        self,
        filename: str,
        *,
        map_location: str | Callable = 'cpu',
        strict: bool = False,
        revise_keys: Sequence[tuple[str, str]] = ((r'^module.', ''),),
        callback: Callable | None = None,
    ) -> dict:
        """Load a folder, or a file of ``Runner``; see ``DDPStrategy``."""
        from mmengine.runner.checkpoint import _load_checkpoint

        self.logger.info(f'Load checkpoint from {filename}')
        if os.path.isdir(filename):
            without = () if hasattr(self, 'optim_wrapper') else _TRAINING
            checkpoint = load_sharded(filename, self._placement(), without)
        else:
            checkpoint = _load_checkpoint(filename, map_location='cpu')
            spread(checkpoint, self._placement())
        if callback is not None:
            callback(checkpoint)
        state = checkpoint.pop('state_dict')
        self.load_model_state_dict(state, strict=strict, revise_keys=list(revise_keys))
        return checkpoint

    def _placement(self) -> Placement:
        """How saved tensors are spread: like the parameter they belong to."""
        names = dict(self.model.named_parameters(remove_duplicate=False))

        def place(path: Path_, size: torch.Size) -> torch.Tensor | None:
            name = str(path[-1]).removeprefix('module.')
            found = self._optimised(path) if path[0] == 'optimizer' else names.get(name)
            fits = found is not None and is_sharded(found) and found.shape == size
            return found if fits else None

        return place

    def _optimised(self, path: Path_) -> torch.Tensor | None:
        """Parameter of ``(..., 'state', index, name)``."""
        wrapper = getattr(self, 'optim_wrapper', None)
        if len(path) < 4 or path[-3] != 'state' or wrapper is None:
            return None
        if isinstance(wrapper, OptimWrapperDict):
            wrapper = wrapper[path[1]]
        parameters = [p for group in wrapper.optimizer.param_groups for p in group['params']]
        return parameters[path[-2]] if path[-2] < len(parameters) else None


def all_reduce_mean(gradient: torch.Tensor) -> torch.Tensor:
    """Average a gradient over all processes, as the gradients of shards are."""
    gradient = gradient.clone()
    all_reduce(gradient, 'mean')
    return gradient


def _copy_with(model: nn.Module, make: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Copy a model with other tensors in place of its own."""
    memo: dict[int, Any] = {id(buffer): make(buffer) for buffer in model.buffers()}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(make(parameter), requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, memo)


def _sharded_copy(model: nn.Module, empty: nn.Module, memo: dict) -> nn.Module:
    """Copy the values of a sharded model, without what gathers its shards."""
    for name in ('named_parameters', 'named_buffers'):
        there = dict(getattr(model, name)())
        for key, tensor in getattr(empty, name)():
            value = there[key].detach().clone()
            if isinstance(tensor, nn.Parameter):
                value = nn.Parameter(value, tensor.requires_grad)
            memo[id(tensor)] = value
    return copy.deepcopy(empty, memo)
