"""The largest learning rate of a geometric series that does not diverge.

Source: "in-batch bias of two-tower models", appendix D.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SearchRule:
    """How a learning rate is chosen and when a training ends.

    Attributes:
        first_exponent: The first learning rate is 2 to this power.
        last_exponent: The last one that is tried.
        divergence: A learning rate is given up when the objective is more
            than so many times its first value, or NaN.
        patience: Epochs without an improvement of any metric that end a training.
        checks_per_epoch: Objective and metrics are computed so often, at
            most once a step. The objective also after 1, 2, 4, 8, ... steps, so that a hopeless
            learning rate costs a step, not an epoch.
        max_steps: Steps that end a training; None: no limit.
    """

    first_exponent: int = 18
    last_exponent: int = -20
    divergence: float = 100.0
    patience: int = 10
    checks_per_epoch: int = 100
    max_steps: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (
            ('divergence', 1),
            ('patience', 1),
            ('checks_per_epoch', 1),
            ('max_steps', 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f'{name} must be at least {least}, got {value}')
        if self.last_exponent > self.first_exponent:
            raise ValueError(
                f'last_exponent={self.last_exponent} must not be above '
                f'first_exponent={self.first_exponent}: learning rates are halved'
            )


@dataclass
class Training:
    """One training at one learning rate.

    Attributes:
        lr: The learning rate.
        steps: Steps that were made.
        epochs: Epochs, with a fraction.
        ended: ``diverged``, ``no improvement`` or ``max_steps``.
        best: Best value of each metric; empty if it diverged before the
            first check.
        first_objective: Objective of the initial weights.
        last_objective: Objective at the last check.
        history: Step, objective and metrics of each check of the metrics.
    """

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
