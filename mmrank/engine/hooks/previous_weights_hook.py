"""Scores every batch again under the previous weights."""

import copy
from contextlib import ExitStack

import torch
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapperDict
from torch import nn

from mmrank.engine.resume.rng_state import get_rng_state, set_rng_state
from mmrank.engine.runners import refuse_flexible_runner, unwrap_model
from mmrank.registry import HOOKS
from mmrank.state import MeanPositiveScore

_CHECKPOINT_KEY = 'mmrank_previous_weights'


@HOOKS.register_module()
class PreviousWeightsHook(Hook):
    """Passes the batch mean under the old weights to ``mean_mode='exact'``.

    The variance-reduction term of the mean positive score needs ``m_k`` under ``theta_{k-1}``:
    before each iteration the batch is scored without gradient under a kept copy of the weights of
    the iteration before. Source: stable AP (2025), eq. 6.

    Random generators are set back, and batch and buffers are copied. It costs one forward and one
    copy of the weights, on the device and in each checkpoint.
    """

    _previous: dict[str, torch.Tensor] | None = None

    def before_train(self, runner) -> None:
        refuse_flexible_runner(type(runner))
        model = unwrap_model(runner.model)
        if not _exact_means(model):
            raise ValueError(
                'PreviousWeightsHook is in custom_hooks, but no loss of the model has '
                "mean_mode='exact'. Set it, or remove the hook, which adds a forward pass"
            )
        if isinstance(runner.optim_wrapper, OptimWrapperDict) or not isinstance(model, BaseModel):
            raise ValueError(
                'PreviousWeightsHook needs one optimiser and an mmengine.model.BaseModel, got '
                f'{type(runner.optim_wrapper).__name__} and {type(model).__name__}. Set '
                "mean_mode='plain' and remove the hook"
            )

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        params = {name: p.detach() for name, p in unwrap_model(runner.model).named_parameters()}
        if self._previous is None:
            self._previous = {n: p.clone() for n, p in params.items()}
        self._score(runner, data_batch)
        names = list(self._previous)
        torch._foreach_copy_([self._previous[n] for n in names], [params[n] for n in names])

    def _score(self, runner, data_batch) -> None:
        model = unwrap_model(runner.model)
        generators = get_rng_state()
        with ExitStack() as stack:
            stack.callback(set_rng_state, generators)
            stack.enter_context(torch.no_grad())
            stack.enter_context(runner.optim_wrapper.optim_context(model))
            for state in _exact_means(model):
                stack.enter_context(state.probing())
            data = model.data_preprocessor(copy.deepcopy(data_batch), True)
            args, kwargs = ((), data) if isinstance(data, dict) else (data, {})
            kwargs = {**kwargs, 'mode': 'loss'}
            tensors = {n: b.clone() for n, b in model.named_buffers()}
            tensors.update(self._previous)
            torch.func.functional_call(model, tensors, args, kwargs)

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        if self._previous is not None:
            checkpoint[_CHECKPOINT_KEY] = {n: p.cpu() for n, p in self._previous.items()}

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        kept = checkpoint.get(_CHECKPOINT_KEY)
        if kept is not None and runner._resume:
            named = unwrap_model(runner.model).named_parameters()
            self._previous = {name: kept[name].to(p.device, p.dtype) for name, p in named}


def _exact_means(model: nn.Module) -> list[MeanPositiveScore]:
    means = [m for m in model.modules() if isinstance(m, MeanPositiveScore)]
    return [mean for mean in means if mean.mode == 'exact']
