"""Minimise an objective of all pairs, without sampling."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

#: Evaluations of a line search that are never reached but in trouble.
_EVALUATIONS = 25


@dataclass
class FullGradientResult:
    """What came of a minimisation.

    Attributes:
        objective: Value at the end.
        gradient_norm: Norm of the gradient at the end.
        iterations: Iterations of L-BFGS.
        evaluations: Evaluations of objective and gradient.
        converged: Whether the norm fell below the tolerance.
        best: Best value of each metric at the checks.
        last: Metrics at the end.
    """

    objective: float
    gradient_norm: float
    iterations: int = 0
    evaluations: int = 0
    converged: bool = False
    best: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)


def minimise_by_lbfgs(
    model,
    objective: Callable,
    tolerance: float = 1e-7,
    max_iterations: int = 1000,
    check_interval: int = 10,
    history_size: int = 10,
    evaluate: Callable | None = None,
    report: Callable[[FullGradientResult], None] | None = None,
) -> FullGradientResult:
    """Limited-memory BFGS with a strong Wolfe line search.

    Source: "in-batch bias of two-tower models", appendix G.2; the paper ends at a gradient norm of
    1e-7. Use a model of float64.
    """
    parameters = [x for x in model.parameters() if x.requires_grad]
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=check_interval,
        max_eval=_EVALUATIONS * check_interval,
        # Of one component; the norm that counts is checked below.
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=history_size,
        line_search_fn='strong_wolfe',
    )

    def closure():
        optimizer.zero_grad()
        value = objective(model)
        value.backward()
        return value

    result = FullGradientResult(closure().item(), _norm(parameters))
    stuck = False
    while True:
        result.converged = result.gradient_norm <= tolerance
        if evaluate is not None:
            result.last = evaluate(model)
            for name, value in result.last.items():
                best = result.best.get(name, value)
                result.best[name] = max(value, best)
        if report is not None:
            report(result)
        left = max_iterations - result.iterations
        if result.converged or stuck or left <= 0:
            return result
        before = result.objective
        optimizer.param_groups[0]['max_iter'] = min(check_interval, left)
        optimizer.step(closure)
        # The last evaluation of a line search need not be its choice.
        result.objective = closure().item()
        result.gradient_norm = _norm(parameters)
        state = optimizer.state_dict()['state'][0]
        result.iterations = state['n_iter']
        result.evaluations = state['func_evals']
        # No step lowers it any more: the limit of the precision.
        stuck = not result.objective < before


def _norm(parameters) -> float:
    total = torch.stack([x.grad.square().sum() for x in parameters]).sum()
    return float(total.sqrt())
