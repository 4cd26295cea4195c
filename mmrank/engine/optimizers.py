"""Optimisers, and wrappers of optimisers that cache gradients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import nn
from torch.optim import Optimizer

from mmrank.checks import check_count, check_not_negative, check_within, one_of
from mmrank.models.grad_cache import embedding_in_chunks
from mmrank.registry import OPTIM_WRAPPERS, OPTIMIZERS


@OPTIMIZERS.register_module()
class SUM(Optimizer):
    """Stochastic unified momentum: heavy ball (s=0) to Nesterov (s=1).

    ``g_{k+1} = theta_k - lr grad``, ``gs_{k+1} = theta_k - s lr grad``, ``theta_{k+1} = g_{k+1} +
    beta (gs_{k+1} - gs_k)`` with ``gs_1 = theta_1``. Source: stable AP (2025), algorithm 1.

    The state is ``d_k = theta_k - gs_k`` (0 at the start), not ``gs_k`` itself: the difference of
    two nearly equal weights would lose its digits. Then ``u = d_k - s lr grad``, ``theta_{k+1} =
    theta_k - lr grad + beta u`` and ``d_{k+1} = beta u - (1 - s) lr grad``.

    Args:
        params: Parameters or groups, which may set their own lr, momentum, s and weight_decay.
        lr: Step size, >= 0.
        momentum: beta in ``[0, 1)``.
        s: Interpolation, >= 0; 0 is heavy ball, 1 is Nesterov.
        weight_decay: L2 coefficient added to the gradient, >= 0.

    Raises:
        ValueError: On a parameter out of range.
        RuntimeError: On a sparse gradient.
    """

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        momentum: float = 0.9,
        s: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = dict(lr=lr, momentum=momentum, s=s, weight_decay=weight_decay)
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict) -> None:
        group = {**self.defaults, **param_group}
        check_not_negative(lr=group['lr'], s=group['s'], weight_decay=group['weight_decay'])
        check_within('[0, 1)', momentum=group['momentum'])
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """Take one step; return what the closure, which re-evaluates the model, returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict) -> None:
        params = [p for p in group['params'] if p.grad is not None]
        if not params:
            return
        grads = [p.grad for p in params]
        if any(g.is_sparse for g in grads):
            raise RuntimeError(
                'SUM does not support sparse gradients; set sparse=False in the embedding'
            )
        for p in params:
            if 'drift' not in self.state[p]:
                self.state[p]['drift'] = torch.zeros_like(p)
        drift = [self.state[p]['drift'] for p in params]
        lr, s, beta = group['lr'], group['s'], group['momentum']
        if group['weight_decay']:
            grads = torch._foreach_add(grads, params, alpha=group['weight_decay'])
        # drift becomes beta * u, which theta takes whole ...
        torch._foreach_add_(drift, grads, alpha=-s * lr)
        torch._foreach_mul_(drift, beta)
        torch._foreach_add_(params, drift)
        torch._foreach_add_(params, grads, alpha=-lr)
        # ... and then d_{k+1}.
        torch._foreach_add_(drift, grads, alpha=-(1 - s) * lr)


class _GradCache:
    def __init__(self, *args, chunk: int, batch_norm: str = 'refuse', **kwargs) -> None:
        super().__init__(*args, **kwargs)
        check_count('chunk', chunk)
        one_of('batch_norm', batch_norm, ('refuse', 'chunk'))
        self.chunk, self.batch_norm = chunk, batch_norm

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """The host's context, within which the model embeds in chunks."""
        with super().optim_context(model), embedding_in_chunks(model, self.chunk, self.batch_norm):
            yield


@OPTIM_WRAPPERS.register_module()
class GradCacheOptimWrapper(_GradCache, OptimWrapper):
    """Big batches in the memory of small ones, for losses of embeddings.

    Images, or texts, go through the encoder in chunks; the loss sees the embeddings of all, once,
    so its state is updated once; then each chunk goes through the encoder again for its gradient.
    Value and gradient are the whole batch's, activations take the memory of a chunk, and a
    step takes up to a third longer. See :func:`mmrank.functional.grad_cache`, also for dropout.
    Source: Gao et al., 2021.

    With DistributedDataParallel a process has chunks of its own batch, and sends its gradients once
    a step. With ``accumulative_counts`` each batch is a batch of its own for the loss.

    Args:
        chunk: Rows that an encoder embeds at a time: images, texts, or in self-supervised learning
            views.
        batch_norm: Batch norm in training mode normalises by a chunk: ``refuse`` it, or ``chunk``;
            the running statistics take in each chunk once.
        *args: Of mmengine's ``OptimWrapper``.
        **kwargs: Of it, such as ``optimizer``, ``clip_grad`` and ``accumulative_counts``.

    Raises:
        ValueError: On a parameter out of range.
        UserError: In training, if the model cannot embed in chunks.

    Example:
        >>> optim_wrapper = dict(
        ...     type='mmrank.GradCacheOptimWrapper', chunk=64, optimizer=dict(type='SGD', lr=0.1))
    """


@OPTIM_WRAPPERS.register_module()
class GradCacheAmpOptimWrapper(_GradCache, AmpOptimWrapper):
    """:class:`GradCacheOptimWrapper` in mixed precision, with mmengine's ``AmpOptimWrapper``.

    Both passes of a chunk run under the same autocast; the loss is scaled once, before its backward
    pass. Sums of gradients over chunks are rounded as by autocast, in the dtype of the products.
    """
