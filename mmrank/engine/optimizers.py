"""Optimisers."""

from collections.abc import Callable

import torch
from torch.optim import Optimizer

from mmrank.registry import OPTIMIZERS
from mmrank.settings import check_not_negative, check_within


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
            params = [p for p in group['params'] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            for p in params:
                if 'drift' not in self.state[p]:
                    self.state[p]['drift'] = torch.zeros_like(p)
            drift = [self.state[p]['drift'] for p in params]
            lr = group['lr']
            s = group['s']
            if group['weight_decay']:
                grads = torch._foreach_add(grads, params, alpha=group['weight_decay'])
            # drift becomes beta * u, which theta takes whole ...
            torch._foreach_add_(drift, grads, alpha=-s * lr)
            torch._foreach_mul_(drift, group['momentum'])
            torch._foreach_add_(params, drift)
            torch._foreach_add_(params, grads, alpha=-lr)
            # ... and then d_{k+1}.
            torch._foreach_add_(drift, grads, alpha=-(1 - s) * lr)
        return loss
