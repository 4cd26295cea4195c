"""How the study's trainings end: the search for a learning rate, L-BFGS on all pairs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class SearchRule:
    """How a learning rate is chosen and when a training ends."""

    first_exponent: int = 18  # The first learning rate is 2 to this power
    last_exponent: int = -20  # The last one that is tried
    # A learning rate is given up when the objective is more than so many times its first value, or
    # NaN
    divergence: float = 100.0
    patience: int = 10  # Epochs without an improvement of any metric that end a training
    # Objective and metrics are computed so often, at most once a step. The objective also after 1,
    # 2, 4, 8, ... steps, so that a hopeless learning rate costs a step, not an epoch.
    checks_per_epoch: int = 100
    max_steps: int | None = None  # Steps that end a training; None: no limit

    def __post_init__(self) -> None:
        for name in ('divergence', 'patience', 'checks_per_epoch', 'max_steps'):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f'{name} must be at least 1, got {value}')
        if self.last_exponent > self.first_exponent:
            raise ValueError(
                f'last_exponent={self.last_exponent} must not be above '
                f'first_exponent={self.first_exponent}: learning rates are halved'
            )


@dataclass
class Training:
    """One training at one learning rate; ``ended``: diverged, no improvement or max_steps."""

    lr: float
    steps: int = 0
    epochs: float = 0.0
    ended: str = ''
    best: dict[str, float] = field(default_factory=dict)
    first_objective: float = math.nan
    last_objective: float = math.nan
    history: list[dict] = field(default_factory=list)


def train_until_it_ends(
    loop, lr: float, rule: SearchRule, report: Callable[[Training], None] | None = None
) -> Training:
    """Train at one learning rate, by the rule."""
    training = Training(lr, first_objective=loop.objective())
    epoch = loop.steps_per_epoch
    interval = max(1, round(epoch / rule.checks_per_epoch))
    last_improved = 0
    while not training.ended:
        due = (training.steps // interval + 1) * interval
        if training.steps < interval:
            due = min(max(1, 2 * training.steps), interval)
        if rule.max_steps is not None:
            due = min(due, rule.max_steps)
        loop.train(due - training.steps)
        training.steps, training.epochs = due, due / epoch
        training.last_objective = loop.objective()
        limit = rule.divergence * abs(training.first_objective)
        # Not "greater than", which NaN never is.
        if not training.last_objective <= limit:
            training.ended = 'diverged'
            break
        at_limit = due == rule.max_steps
        if due % interval == 0 or at_limit:
            improved = _note_metrics(training, loop.evaluate())
            last_improved = due if improved else last_improved
        if due - last_improved >= rule.patience * epoch:
            training.ended = 'no improvement'
        elif at_limit:
            training.ended = 'max_steps'
        if report is not None:
            report(training)
    return training


def _note_metrics(training: Training, metrics: dict[str, float]) -> bool:
    """Whether any metric is better than ever before."""
    training.history.append(dict(step=training.steps, objective=training.last_objective, **metrics))
    improved = False
    for name, value in metrics.items():
        if value > training.best.get(name, -math.inf):
            training.best[name], improved = value, True
    return improved


def search_learning_rate(
    start: Callable[[float], object],
    rule: SearchRule,
    report: Callable[[Training], None] | None = None,
) -> tuple[Training, list[Training]]:
    """Halve the learning rate until a training does not diverge."""
    diverged = []
    for exponent in range(rule.first_exponent, rule.last_exponent - 1, -1):
        lr = 2.0**exponent
        training = train_until_it_ends(start(lr), lr, rule, report)
        if training.ended != 'diverged':
            return training, diverged
        diverged.append(training)
    raise RuntimeError(
        f'the training diverges at every learning rate from 2^{rule.first_exponent} to '
        f'2^{rule.last_exponent}; lower last_exponent, or check the data for NaN'
    )


#: Evaluations of a line search that are never reached but in trouble.
_EVALUATIONS = 25


@dataclass
class FullGradientResult:
    """The end of a minimisation; ``converged``: the gradient's norm fell below the tolerance."""

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
    """L-BFGS with a strong Wolfe line search, in float64: "in-batch bias ...", appendix G.2."""
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
                result.best[name] = max(value, result.best.get(name, value))
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
