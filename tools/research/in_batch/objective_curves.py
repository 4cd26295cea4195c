"""The objective of two-tower trainings against their steps."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmrank.visualization.figures import new_panels, save
from mmrank.visualization.palette import colours_of, dash, loss_name
from research.in_batch.data import TwoTowerData
from research.in_batch.stepwise_training import StepwiseTraining


@dataclass
class ObjectiveCurve:
    """One training.

    Attributes:
        steps: Steps done, from 0.
        values: Objective of all pairs at these steps, the same one for every training of a
            pointwise loss.
        seconds: CPU seconds of all its steps, without the objective.
        metrics: On the held-out pairs, at the end.
    """

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def milliseconds_a_step(self) -> float:
        """CPU time of a step."""
        return 1e3 * self.seconds / max(self.steps[-1], 1)


def train_in_turn(
    data: TwoTowerData,
    losses: Mapping[str, dict],
    batch_size: int,
    lr: float,
    num_steps: int,
    every: int,
    seed: int = 0,
) -> dict[str, ObjectiveCurve]:
    """Train with several losses from the same weights, in turn."""
    every_pair = data.all_pairs()
    trainings = {
        name: StepwiseTraining(data, loss, batch_size, lr, seed) for name, loss in losses.items()
    }
    curves = {name: ObjectiveCurve() for name in trainings}
    for done in range(0, num_steps + 1, every):
        for name, training in trainings.items():
            curve = curves[name]
            start = time.process_time()
            training.train(done - training.step)
            curve.seconds += time.process_time() - start
            curve.steps.append(done)
            curve.values.append(training.objective(every_pair))
    for name, training in trainings.items():
        curves[name].metrics = training.evaluate()
    return curves


def size_row(data: TwoTowerData) -> dict[str, float]:
    """What the paper's table 3 has of a data set."""
    pairs = data.train.interactions
    m, n = pairs.shape
    users = np.bincount(pairs.rows, minlength=m)
    items = np.bincount(pairs.cols, minlength=n)
    popularity = float(users.mean() * items.mean())
    return {'m': m, 'n': n, '|O|': len(pairs), 'mean |O_i,:| |O_:,j|': popularity}


def plot_objectives(
    curves: Mapping[str, Mapping[str, ObjectiveCurve]], path: str | os.PathLike
) -> Path:
    """Draw a panel for each pointwise loss, a curve for each loss."""
    figure, axes = new_panels(1, len(curves), 4.4, 3.2)
    for axis, (pointwise, own) in zip(axes[0], curves.items()):
        names: Sequence[str] = list(own)
        for index, (name, shade) in enumerate(zip(names, colours_of(names))):
            axis.plot(
                own[name].steps,
                own[name].values,
                label=loss_name(name),
                color=shade,
                linestyle=dash(index),
            )
        axis.set(xlabel='step', ylabel='objective', yscale='log')
        axis.tick_params(which='both', labelsize=8)
        axis.set_title(pointwise, fontsize=9, loc='left')
        axis.legend(fontsize=8, frameon=False)
    return save(figure, path)
