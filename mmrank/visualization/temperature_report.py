"""Tables and pictures of the temperatures of a training set."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from mmrank.datasets.samplers.labels import class_labels
from mmrank.errors import UserError
from mmrank.files import write_csv_atomically
from mmrank.visualization.figures import fit_text, new_panels, save, shorten
from mmrank.visualization.palette import colour
from mmrank.visualization.temperatures import (
    LEVELS,
    ClassTemperature,
    RankCorrelation,
    TemperatureHistory,
    Temperatures,
    class_temperatures,
    extreme_samples,
    frequency_correlation,
)

# Vermilion and blue, as heat is drawn.
HOT, COLD = colour(0), colour(1)
# Up to this many classes each has its name below.
_NAMED_CLASSES = 20
# Inches of an image of the sheet, with its text.
_COLUMN, _ROW = 0.78, 1.05
_DPI = 120
#: Keys of an item that may say what it shows, where there are no classes.
_TEXT_KEYS = ('caption', 'text', 'gt_caption')


def plot_history(
    history: TemperatureHistory, path: str | os.PathLike, title: str = '', unit: str = 'epoch'
) -> Path:
    """Draw the histograms of at least one reading over time, and the first and the last one."""
    if not history.steps:
        raise ValueError('a history without a reading cannot be drawn')
    figure, axes = new_panels(1, 2, width=4.2, height=3.4)
    over_time, final = axes[0]
    counts = np.array(history.counts, dtype=float)
    shares = 100 * counts / counts.sum(1, keepdims=True)
    steps = np.array(history.steps, dtype=float)
    quantiles = np.array(history.quantiles)
    if len(steps) > 1:
        # A column from halfway before its step to halfway after.
        middles = (steps[1:] + steps[:-1]) / 2
        ends = 2 * steps[[0, -1]] - middles[[0, -1]]
        times = np.concatenate([ends[:1], middles, ends[1:]])
        mesh = over_time.pcolormesh(times, history.edges, shares.T, cmap='Greys', rasterized=True)
        bar = figure.colorbar(mesh, ax=over_time, pad=0.02)
        bar.set_label('% of samples', fontsize=8)
        bar.ax.tick_params(labelsize=7)
        over_time.set_xlim(times[0], times[-1])
    for level, style in ((0.95, ':'), (0.5, '-'), (0.05, ':')):
        over_time.plot(
            steps,
            quantiles[:, LEVELS.index(level)],
            color=HOT if level >= 0.5 else COLD,
            linestyle=style,
            linewidth=1.5,
            marker='o' if len(steps) < 3 else None,
            label=f'{100 * level:g} % below',
        )
    # Where there is a sample at any time, one bin more on each side.
    used = np.flatnonzero(counts.sum(0))
    low, high = history.edges[[max(used[0] - 1, 0), min(used[-1] + 2, len(history.edges) - 1)]]
    over_time.set(ylim=(low, high), xlabel=unit, ylabel='temperature τ')
    over_time.legend(fontsize=7, frameon=True, framealpha=0.8)
    over_time.grid(False)

    styles = {0: ('#999999', 0.6), len(steps) - 1: (HOT, 0.75)}
    for place, (own, alpha) in styles.items():
        label = f'{unit} {history.steps[place]:,}'
        final.stairs(shares[place], history.edges, fill=True, color=own, alpha=alpha, label=label)
    final.set(xlim=(low, high), xlabel='temperature τ', ylabel='% of samples')
    final.legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    return save(figure, path)


def _plot_classes(
    rows: Sequence[ClassTemperature],
    correlation: RankCorrelation,
    path: str | os.PathLike,
    title: str = '',
    num_extreme: int = 600,
) -> Path:
    """Draw mean temperatures by frequency, and the classes of the hot and cold samples.

    The right panel is the paper's figure 5: for each class, the share of its samples among the
    ``num_extreme`` hottest and coldest of all. Classes without a sample are left out.
    """
    rows = sorted((r for r in rows if r.count), key=lambda r: -r.count)
    counts, means = np.array([r.count for r in rows]), np.array([r.mean for r in rows])
    errors = np.array([r.std for r in rows]) / np.sqrt(counts)
    names = [shorten(r.name, 14) for r in rows] if len(rows) <= _NAMED_CLASSES else []
    figure, axes = new_panels(1, 2, width=4.6, height=3.6)
    frequency, shares = axes[0]
    style = dict(linestyle='', marker='o', markersize=4, elinewidth=0.8, color=COLD)
    frequency.errorbar(counts, means, yerr=errors, **style)
    if counts.min() * 3 < counts.max():
        frequency.set_xscale('log')
    beside = dict(xytext=(4, 3), textcoords='offset points', fontsize=6.5, color='#555555')
    for name, row in zip(names, rows):
        frequency.annotate(name, (row.count, row.mean), **beside)
    frequency.set(
        xlabel='samples of the class',
        ylabel='mean temperature τ ± its standard error',
        title=f'Spearman {correlation}',
    )
    frequency.title.set_fontsize(9)

    places = np.arange(len(rows))
    hot, cold = np.array([(r.hot_share, r.cold_share) for r in rows]).T
    for values, own, name in ((hot, HOT, 'hottest'), (-cold, COLD, 'coldest')):
        label = f'among the {num_extreme:,} {name}'
        shares.bar(places, 100 * values, width=0.85, color=own, label=label)
    shares.axhline(0, color='black', linewidth=0.8)
    shares.yaxis.set_major_formatter(lambda y, _: f'{abs(y):g}')
    shares.set(xlabel='classes, the most frequent first', ylabel='% of the samples of the class')
    if names:
        shares.set_xticks(places, names, rotation=60, ha='right', fontsize=7)
        shares.set_xlabel('')
    shares.legend(fontsize=7, frameon=False)
    figure.suptitle(title, fontsize=10)
    return save(figure, path)


@dataclass(frozen=True)
class _WarmImage:
    """One (H, W, 3) uint8 RGB image of the sheet; its label is '' where it is not known."""

    image: np.ndarray
    tau: float
    label: str


def _draw_temperature_sheet(
    hot: Sequence[_WarmImage],
    cold: Sequence[_WarmImage],
    path: str | os.PathLike,
    title: str = '',
    columns: int = 10,
) -> Path:
    """Draw the hot images, the hottest first, above the cold ones, the coldest first."""
    blocks = [(hot, HOT, 'largest temperatures'), (cold, COLD, 'smallest temperatures')]
    blocks = [block for block in blocks if block[0]]
    if not blocks:
        raise ValueError('a sheet needs at least one image')
    rows = [-(-len(images) // columns) for images, *_ in blocks]
    height = sum(rows) * _ROW + 0.4 * len(blocks) + 0.3
    figure = Figure(figsize=(columns * _COLUMN, height), layout='constrained')
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=10)
    parts = figure.subfigures(len(blocks), 1, height_ratios=rows, squeeze=False)[:, 0]
    for part, count, (images, own, heading) in zip(parts, rows, blocks):
        part.suptitle(heading, fontsize=9, color=own, weight='bold')
        axes = part.subplots(count, columns, squeeze=False).ravel()
        for axis in axes[len(images) :]:
            axis.set_axis_off()
        for axis, item in zip(axes, images):
            axis.imshow(item.image, interpolation='nearest')
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set(color=own, linewidth=1.5)
            label = fit_text(item.label, _COLUMN - 0.05, 6)
            axis.set_xlabel(f'{item.tau:.3g}\n{label}', fontsize=6)
    return save(figure, path, dpi=_DPI, has_photos=True)


def write_temperature_report(
    temperatures: Temperatures,
    dataset,
    folder: str | os.PathLike,
    num_extreme: int = 600,
    num_images: int = 40,
) -> tuple[list[Path], RankCorrelation | None]:
    """Write tables, the class figure and the sheet of images.

    ``samples_<name>.csv`` has every sample; where the data set has one class an image,
    ``classes_<name>.csv`` and ``classes_<name>.png`` have the classes; ``sheet_<name>.png`` shows
    ``num_images`` of each kind as they are before the pipeline, 0 for no sheet.

    ``dataset`` is the training set; ``get_data_info(i)`` of sample i has ``img`` in RGB, or
    ``img_path``. Wrappers that repeat it are unwrapped. Returns the files, and the rank correlation
    of class frequency and mean temperature; None where there are no classes.
    """
    # RepeatDataset and the like show a sample several times.
    while len(dataset) != len(temperatures.tau) and hasattr(dataset, 'dataset'):
        dataset = dataset.dataset
    tau, visited = temperatures.tau, temperatures.visited
    if len(dataset) != len(tau):
        raise UserError(
            f'there are {len(tau):,} temperatures, but the training set has {len(dataset):,} '
            'samples. Fix: pass the config that the checkpoint was trained with'
        )
    if not visited.any():
        raise UserError(
            f'{temperatures.name}: no sample was visited: all temperatures '
            'are the initial ones. Fix: pass a later checkpoint'
        )
    folder, name, num_visited = Path(folder), temperatures.name, int(visited.sum())
    labels, names = _classes(dataset)
    lines = [['sample_idx', 'tau', 'visited']]
    lines += [[i, f'{x:.6g}', int(seen)] for i, (x, seen) in enumerate(zip(tau, visited))]
    if labels is not None:
        lines = [[*line, label] for line, label in zip(lines, ['label', *labels])]
    paths = [write_csv_atomically(lines, folder / f'samples_{name}.csv')]
    correlation = None
    if labels is not None:
        rows = class_temperatures(tau, visited, labels, names, num_extreme)
        correlation = frequency_correlation(rows)
        paths.append(_write_classes(rows, folder / f'classes_{name}.csv'))
        picture = folder / f'classes_{name}.png'
        shown = min(num_extreme, num_visited // 2)
        paths.append(_plot_classes(rows, correlation, picture, name, shown))
    if num_images and num_visited > 1:
        hot, cold = (
            [_show(dataset, i, tau[i], labels, names) for i in own]
            for own in extreme_samples(tau, visited, num_images)
        )
        picture, title = folder / f'sheet_{name}.png', f'{name}, {num_visited:,} samples'
        paths.append(_draw_temperature_sheet(hot, cold, picture, title))
    return paths, correlation


def _classes(dataset) -> tuple[np.ndarray | None, Sequence[str]]:
    try:
        labels = class_labels(dataset)
    except (KeyError, TypeError, ValueError):
        return None, ()  # captions, or several classes an image
    names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
    if names is None:
        names = [str(i) for i in range(int(labels.max(initial=-1)) + 1)]
    return labels, names


def _write_classes(rows: Sequence[ClassTemperature], path: Path) -> Path:
    lines = [['class', 'samples', 'mean', 'std', 'hot', 'cold']]
    for row in rows:
        numbers = (row.mean, row.std, row.hot_share, row.cold_share)
        numbers = ('' if np.isnan(x) else f'{x:.6g}' for x in numbers)
        lines.append([row.name, row.count, *numbers])
    return write_csv_atomically(lines, path)


def _show(dataset, index: int, tau: float, labels, names) -> _WarmImage:
    item = dataset.get_data_info(int(index))
    image = item.get('img')
    if image is None:
        with Image.open(item['img_path']) as file:
            file.thumbnail((192, 192))
            image = np.asarray(ImageOps.exif_transpose(file).convert('RGB'))
    if labels is not None:
        label = names[labels[index]]
    else:
        texts = (item.get(key) for key in _TEXT_KEYS)
        label = next((t for t in texts if t), '')
        label = label if isinstance(label, str) else str(label[0])
    return _WarmImage(np.asarray(image), float(tau), label)
