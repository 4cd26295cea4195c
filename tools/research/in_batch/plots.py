"""Tables and figures of the study of in-batch sampling."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from in_batch.training import StepwiseTraining, TwoTowerData
from mmrank.apis.common.names import loss_name
from mmrank.apis.common.tables import write_table
from mmrank.visualization.figures import label_panels, legend_above, new_panels, save
from mmrank.visualization.palette import LOSS_STYLES, colours_of, dash

NAMES = {
    'unbiased': 'Unbiased',
    'unbiased_omega': 'Unbiased-omega',
    'in_batch': 'In-Batch',
    'popularity': 'Popularity',
    'pos_neg': 'Pos-Neg',
    'sogram': 'Sogram',
}
# With all pairs as the batch; G.2 calls unbiased-omega so.
FULL_NAMES = {
    'unbiased': 'Unbiased',
    'in_batch_omega': 'In-Batch-omega',
    'popularity': 'Popularity',
    'unbiased_omega': 'Pos-Neg-omega',
}
FULL_OF = {'pos_neg': 'unbiased_omega', 'in_batch': 'in_batch_omega'}
_SHORT = {'square': 'SQ', 'logistic': 'LR'}
_KINDS = {'precision': 'P', 'recall': 'R'}
_MARKERS = 'osD^vP'
_DRAWN = 'top_k/precision@5'


def write_study_tables(results: Mapping[str, Mapping], folder: str | os.PathLike) -> list[Path]:
    """Write the tables in the layout of the paper's tables 5 and 6."""
    folder, files = Path(folder), []
    order = list(_SHORT).index
    cells = sorted(
        (dict(x, key=key) for key, x in results.items()),
        key=lambda x: (x['full'], order(x['pointwise']), x['mode'], x['batch_ratio'] or 0.0),
    )
    for full, names, stem, title in (
        (False, NAMES, 'sampled', 'Best metrics with sampled batches'),
        (True, FULL_NAMES, 'full_gradient', 'Metrics at the full gradient'),
    ):
        chosen = [x for x in cells if x['full'] == full]
        if chosen:
            header = ['loss', 'batch ratio']
            for metric, pointwise in _columns(chosen):
                kind, _, k = metric.removeprefix('top_k/').partition('@')
                header.append(f'{_KINDS[kind]}@{k} {_SHORT[pointwise]}')
            rows = _rows(chosen, names)
            files += write_table(header, rows, folder / stem, title, 'In percent.')
    if cells:
        header = ['cell', 'pairs', 'omega', 'learning rate', 'steps']
        header += ['epochs', 'ended', 'objective', 'gradient norm']
        rows = [_how(x) for x in cells]
        files += write_table(header, rows, folder / 'cells', 'How each cell was trained', '')
    return files


def _metrics(cell: Mapping) -> Mapping[str, float]:
    return cell['last'] if cell['full'] else cell['best']


def _columns(cells: Sequence[Mapping]) -> list[tuple[str, str]]:
    """Metric and pointwise loss of each column."""
    numbers = sorted({int(x.rpartition('@')[2]) for x in _metrics(cells[0])})
    found = {x['pointwise'] for x in cells}
    return [
        (f'top_k/{kind}@{k}', pointwise)
        for kind in _KINDS
        for k in numbers
        for pointwise in _SHORT
        if pointwise in found
    ]


def _rows(cells: Sequence[Mapping], names: Mapping[str, str]) -> list[list]:
    by_place = {(x['mode'], x['batch_ratio'], x['pointwise']): _metrics(x) for x in cells}
    rows = []
    for mode, name in names.items():
        ratios = {x['batch_ratio'] for x in cells if x['mode'] == mode}
        for ratio in sorted(ratios, key=lambda x: -1 if x is None else x):
            row = [name, '-' if ratio is None else f'{ratio:g}']
            for metric, pointwise in _columns(cells):
                found = by_place.get((mode, ratio, pointwise))
                row.append('' if found is None else f'{found[metric]:.2f}')
            rows.append(row)
    return rows


def _how(cell: Mapping) -> list:
    full = cell['full']
    ended = cell.get('ended')
    if full:
        ended = 'converged' if cell['converged'] else 'not converged'
    objective = cell['objective'] if full else cell['last_objective']
    return [
        cell['key'],
        '' if full else cell['batch_size'],
        '' if cell['omega'] is None else f'{cell["omega"]:.4g}',
        '' if full else f'{cell["lr"]:g}',
        cell['iterations'] if full else cell['steps'],
        '' if full else f'{cell["epochs"]:.1f}',
        ended,
        f'{objective:.5g}',
        f'{cell["gradient_norm"]:.2g}' if full else '',
    ]


def plot_study(results: Mapping[str, Mapping], path: str | os.PathLike) -> Path:
    """P@5 against the batch ratio; figure 3 of the paper."""
    cells = [x for x in results.values() if x['batch_ratio'] is not None]
    kinds = [x for x in _SHORT if any(c['pointwise'] == x for c in cells)]
    if not kinds:
        raise ValueError('there is no finished cell to draw')
    sides = [x for x in (False, True) if any(c['full'] == x for c in cells)]
    figure, axes = new_panels(len(sides), len(kinds), width=4.6, height=3.2)
    for line, full in zip(axes, sides):
        for axis, pointwise in zip(line, kinds):
            names = FULL_NAMES if full else NAMES
            for index, mode in enumerate(NAMES):
                if full:  # the full objective that has the colour of a loss of batches
                    mode = FULL_OF.get(mode, '')
                if mode not in names:
                    continue
                _draw(axis, results, pointwise, mode, full, index)
            if axis.lines:
                _draw_level(axis, results, pointwise)
            what = 'full gradient, emulated' if full else 'sampled batches'
            axis.set(title=f'{pointwise} loss, {what}', xscale='log')
            axis.set_xlabel('batch ratio $|\\hat O|^2 / |O|^2$')
            # A kind of cell may not be finished for both pointwise losses.
            axis.set_visible(bool(axis.lines))
    top = 1.05 * max(axis.get_ylim()[1] for axis in figure.axes)
    for axis in figure.axes:
        axis.set_ylim(0, top)
    for line in axes:
        line[0].set_ylabel('P@5, %')
    label_panels(axes)
    legend_above(figure, axes[0, 0], 4)
    return save(figure, path)


def _draw(axis, results, pointwise, mode, full, index) -> None:
    points = sorted(
        (x['batch_ratio'], _metrics(x)[_DRAWN])
        for x in results.values()
        if (x['pointwise'], x['mode'], x['full']) == (pointwise, mode, full)
        and x['batch_ratio'] is not None
    )
    if points:
        # The colour is the colour of the loss whose full objective it is.
        style = dict(color=LOSS_STYLES[list(NAMES)[index]].colour, linestyle=dash(index // 3))
        style.update(marker=_MARKERS[index], markersize=4, linewidth=1.4)
        axis.plot(*zip(*points), label=(FULL_NAMES if full else NAMES)[mode], **style)


def _draw_level(axis, results, pointwise) -> None:
    """The unbiased objective at the full gradient, which has no ratio."""
    wanted = (pointwise, 'unbiased', True)
    for cell in results.values():
        if (cell['pointwise'], cell['mode'], cell['full']) == wanted:
            style = dict(color='0.4', linewidth=1, linestyle=':')
            axis.axhline(_metrics(cell)[_DRAWN], label='Unbiased, full gradient', **style)


@dataclass
class ObjectiveCurve:
    """One training: objectives at its steps, final metrics, CPU seconds of the steps alone."""

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
    """The row of a data set in the paper's table 3."""
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
            style = dict(label=loss_name(name), color=shade, linestyle=dash(index))
            axis.plot(own[name].steps, own[name].values, **style)
        axis.set(xlabel='step', ylabel='objective', yscale='log')
        axis.tick_params(which='both', labelsize=8)
        axis.set_title(pointwise, fontsize=9, loc='left')
        axis.legend(fontsize=8, frameon=False)
    return save(figure, path)
