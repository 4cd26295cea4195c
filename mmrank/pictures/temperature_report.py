"""Tables and pictures of the temperatures of a training set."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from mmrank.datasets.labels import class_labels
from mmrank.errors import UserError
from mmrank.files import write_csv_atomically
from mmrank.pictures.figures import fit_text, new_panels, save
from mmrank.pictures.palette import colour
from mmrank.pictures.temperatures import (
    Temperatures,
    class_temperatures,
    extreme_samples,
    frequency_correlation,
)

# Vermilion and blue, as heat is drawn.
HOT = colour(0)
COLD = colour(1)
#: Percentiles of a history.
_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
#: Samples that count as hottest and as coldest, as in figure 5 of the paper.
_NUM_EXTREME = 600
# Inches of an image of the sheet, with its text.
_COLUMN = 0.78
_ROW = 1.05
_DPI = 120
#: Images in a row of the sheet.
_COLUMNS = 10
#: Keys of an item that may say what it shows, where there are no classes.
_TEXT_KEYS = ('caption', 'text', 'gt_caption')


def write_history(
    steps: Sequence[int],
    readings: Sequence[np.ndarray],
    folder: str | os.PathLike,
    name: str,
    unit: str,
) -> list[Path]:
    """Write ``history_<name>.csv`` and ``.png``: percentiles over time, and histograms.

    ``readings`` are the temperatures of visited samples at each of ``steps``, at least one in each.
    """
    levels = np.array([np.percentile(tau, _PERCENTILES) for tau in readings])
    lines = [['step', 'mean', *(f'q{level}' for level in _PERCENTILES)]]
    for step, tau, row in zip(steps, readings, levels):
        lines.append([step, *(f'{x:.6g}' for x in (tau.mean(dtype=np.float64), *row))])
    path = Path(folder) / f'history_{name}'
    table = write_csv_atomically(lines, path.with_suffix('.csv'))

    figure, axes = new_panels(1, 2, width=4.2, height=3.4)
    over_time, final = axes[0]
    marker = 'o' if len(steps) < 3 else None
    for level, style in ((95, ':'), (50, '-'), (5, ':')):
        values = levels[:, _PERCENTILES.index(level)]
        own = HOT if level >= 50 else COLD
        over_time.plot(steps, values, style, color=own, marker=marker, label=f'{level} % below')
    over_time.set(xlabel=unit, ylabel='temperature τ')
    over_time.legend(fontsize=7)
    edges = np.histogram_bin_edges(np.concatenate(readings), 60)
    for place, own in {0: '#999999', len(steps) - 1: HOT}.items():
        tau = readings[place]
        shares = np.full(len(tau), 100 / len(tau))
        label = f'{unit} {steps[place]:,}'
        final.hist(tau, edges, weights=shares, color=own, alpha=0.7, label=label)
    final.set(xlabel='temperature τ', ylabel='% of samples')
    final.legend(fontsize=8, frameon=False)
    figure.suptitle(name, fontsize=10)
    return [table, save(figure, path.with_suffix('.png'))]


def write_temperature_report(
    temperatures: Temperatures, dataset, folder: str | os.PathLike, num_images: int = 40
) -> tuple[list[Path], str]:
    """Write tables and the sheet of images.

    ``samples_<name>.csv`` has every sample, ``classes_<name>.csv`` the classes where the data set
    has one class an image; ``sheet_<name>.png`` shows ``num_images`` of each kind as they are
    before the pipeline, 0 for no sheet.

    ``dataset`` is the training set; ``get_data_info(i)`` of sample i has ``img`` in RGB, or
    ``img_path``. Wrappers that repeat it are unwrapped. Returns the files, and in words the rank
    correlation of class frequency and mean temperature, empty where there are no classes.
    """
    tau = temperatures.tau
    name = temperatures.name
    num_visited = int(temperatures.visited.sum())
    # RepeatDataset and the like show a sample several times.
    while len(dataset) != len(tau) and hasattr(dataset, 'dataset'):
        dataset = dataset.dataset
    if len(dataset) != len(tau):
        raise UserError(
            f'there are {len(tau):,} temperatures, but the training set has {len(dataset):,} '
            'samples. Fix: pass the config that the checkpoint was trained with'
        )
    folder = Path(folder)
    labels = None
    names: Sequence[str] = ()
    with suppress(KeyError, TypeError, ValueError):  # captions, or several classes an image
        labels = class_labels(dataset)
        names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
        names = names or [str(i) for i in range(int(labels.max(initial=-1)) + 1)]
    lines = [['sample_idx', 'tau', 'visited']]
    lines += [
        [i, f'{x:.6g}', int(seen)] for i, (x, seen) in enumerate(zip(tau, temperatures.visited))
    ]
    if labels is not None:
        lines = [[*line, label] for line, label in zip(lines, ['label', *labels])]
    paths = [write_csv_atomically(lines, folder / f'samples_{name}.csv')]
    correlation = ''
    if labels is not None:
        rows = class_temperatures(temperatures, labels, names, _NUM_EXTREME)
        rho, p_value = frequency_correlation(rows)
        correlation = f'Spearman {rho:+.3f} (p = {p_value:.2g})'
        lines = [['class', 'samples', 'mean', 'std', 'hot', 'cold']]
        for row in rows:
            numbers = (row.mean, row.std, row.hot_share, row.cold_share)
            numbers = ('' if np.isnan(x) else f'{x:.6g}' for x in numbers)
            lines.append([row.name, row.count, *numbers])
        paths.append(write_csv_atomically(lines, folder / f'classes_{name}.csv'))
    if num_images and num_visited > 1:
        hot, cold = (
            [_image_and_text(dataset, i, tau[i], labels, names) for i in own]
            for own in extreme_samples(temperatures, num_images)
        )
        rows = -(-len(hot) // _COLUMNS)
        figure = Figure(figsize=(_COLUMNS * _COLUMN, 2 * rows * _ROW + 1.1), layout='constrained')
        FigureCanvasAgg(figure)
        figure.suptitle(f'{name}, {num_visited:,} samples', fontsize=10)
        blocks = ((hot, HOT, 'largest temperatures'), (cold, COLD, 'smallest temperatures'))
        for part, (images, own, heading) in zip(figure.subfigures(2, 1), blocks):
            part.suptitle(heading, fontsize=9, color=own, weight='bold')
            axes = part.subplots(rows, _COLUMNS, squeeze=False).ravel()
            for axis in axes[len(images) :]:
                axis.set_axis_off()
            for axis, (image, text) in zip(axes, images):
                axis.imshow(image, interpolation='nearest')
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set(color=own, linewidth=1.5)
                axis.set_xlabel(text, fontsize=6)
        paths.append(save(figure, folder / f'sheet_{name}.png', dpi=_DPI, has_photos=True))
    return paths, correlation


def _image_and_text(dataset, index: int, tau: float, labels, names) -> tuple[np.ndarray, str]:
    """Image of a sample as (H, W, 3) uint8, and its temperature and label or caption."""
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
        label = next((text for text in texts if text), '')
        label = label if isinstance(label, str) else str(label[0])
    return np.asarray(image), f'{tau:.3g}\n{fit_text(label, _COLUMN - 0.05, 6)}'
