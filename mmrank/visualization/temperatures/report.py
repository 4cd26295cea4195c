"""All tables and pictures of the temperatures of one training set."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mmrank.datasets.samplers.labels import class_labels
from mmrank.files import write_csv_atomically
from mmrank.visualization.temperatures.plots import plot_classes
from mmrank.visualization.temperatures.sheet import WarmImage, draw_temperature_sheet
from mmrank.visualization.temperatures.statistics import (
    ClassTemperature,
    RankCorrelation,
    class_temperatures,
    extreme_samples,
    frequency_correlation,
)
from mmrank.visualization.temperatures.temperatures import Temperatures

#: Keys of an item that may say what it shows, where there are no classes.
_TEXT_KEYS = ('caption', 'text', 'gt_caption')


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
    images as they are before the pipeline.

    Args:
        temperatures: Of all samples of the data set.
        dataset: The training set, sample i of it at index i: its ``get_data_info(i)`` has ``img``
            in RGB, or ``img_path``. Wrappers that repeat it are seen through.
        folder: Where to write.
        num_extreme: How many samples count as hottest and coldest.
        num_images: Images of each kind on the sheet; 0 for no sheet.

    Returns:
        The files, and the rank correlation of class frequency and mean temperature; None where
        there are no classes.

    Raises:
        ValueError: If the data set has another number of samples, or none of them was visited.
    """
    # RepeatDataset and the like show a sample several times.
    while len(dataset) != len(temperatures.tau) and hasattr(dataset, 'dataset'):
        dataset = dataset.dataset
    tau, visited = temperatures.tau, temperatures.visited
    if len(dataset) != len(tau):
        raise ValueError(
            f'there are {len(tau):,} temperatures, but the training set has {len(dataset):,} '
            'samples. Fix: pass the config that the checkpoint was trained with'
        )
    if not visited.any():
        raise ValueError(
            f'{temperatures.name}: no sample was visited: all temperatures '
            'are the initial ones. Fix: pass a later checkpoint'
        )
    folder, name = Path(folder), temperatures.name
    labels, names = _classes(dataset)
    paths = [_write_samples(temperatures, labels, folder / f'samples_{name}.csv')]
    correlation = None
    if labels is not None:
        rows = class_temperatures(tau, visited, labels, names, num_extreme)
        correlation = frequency_correlation(rows)
        paths += [
            _write_classes(rows, folder / f'classes_{name}.csv'),
            plot_classes(
                rows,
                correlation,
                folder / f'classes_{name}.png',
                name,
                min(num_extreme, int(visited.sum()) // 2),
            ),
        ]
    if num_images and visited.sum() > 1:
        paths.append(
            draw_temperature_sheet(
                *(
                    [_show(dataset, i, tau[i], labels, names) for i in own]
                    for own in extreme_samples(tau, visited, num_images)
                ),
                folder / f'sheet_{name}.png',
                f'{name}, {int(visited.sum()):,} samples',
            )
        )
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


def _write_samples(temperatures: Temperatures, labels: np.ndarray | None, path: Path) -> Path:
    columns = ['sample_idx', 'tau', 'visited']
    rows = [columns if labels is None else [*columns, 'label']]
    for index, (tau, visited) in enumerate(zip(temperatures.tau, temperatures.visited)):
        row = [index, f'{tau:.6g}', int(visited)]
        rows.append(row if labels is None else [*row, labels[index]])
    return write_csv_atomically(rows, path)


def _write_classes(rows: Sequence[ClassTemperature], path: Path) -> Path:
    lines = [['class', 'samples', 'mean', 'std', 'hot', 'cold']]
    for row in rows:
        numbers = (row.mean, row.std, row.hot_share, row.cold_share)
        numbers = ('' if np.isnan(x) else f'{x:.6g}' for x in numbers)
        lines.append([row.name, row.count, *numbers])
    return write_csv_atomically(lines, path)


def _show(dataset, index: int, tau: float, labels, names) -> WarmImage:
    item = dataset.get_data_info(int(index))
    image = item.get('img')
    if image is None:
        with Image.open(item['img_path']) as file:
            file.thumbnail((192, 192))
            image = np.asarray(file.convert('RGB'))
    if labels is not None:
        label = names[labels[index]]
    else:
        texts = (item.get(key) for key in _TEXT_KEYS)
        label = next((t for t in texts if t), '')
        label = label if isinstance(label, str) else str(label[0])
    return WarmImage(np.asarray(image), float(tau), label)
