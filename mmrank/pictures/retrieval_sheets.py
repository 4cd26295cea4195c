"""Sheets of a retrieval report: queries, and the images found for them framed as right or wrong."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, ImageOps

from mmrank.errors import MissingFileError
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.files import safe_name
from mmrank.functional import nearest_in_gallery
from mmrank.pictures.figures import fit_text, save, shorten
from mmrank.pictures.retrieval_report import RetrievalResult

CHOICES = ('random', 'worst', 'differing')


def _select_queries(
    average_precision: Sequence[np.ndarray], labels: np.ndarray, how: str, count: int
) -> list[int]:
    """Choose queries with a positive, of as many different classes as there are."""
    values = np.stack(list(average_precision))
    key = {
        'random': np.zeros(values.shape[1]),
        'worst': values.mean(0),
        'differing': -np.ptp(values, axis=0),
    }[how]
    order = np.random.default_rng(0).permutation(values.shape[1])
    order = order[~np.isnan(values).any(0)[order]]
    order = order[np.argsort(key[order], kind='stable')]
    # First the first of each class, then the second of each, ...
    seen: dict[int, int] = {}
    turns = []
    for index in order:
        label = int(labels[index])
        turns.append(seen.get(label, 0))
        seen[label] = turns[-1] + 1
    chosen = order[np.argsort(turns, kind='stable')][:count]
    return [int(i) for i in chosen]


class _Neighbour(NamedTuple):
    path: Path
    score: float
    label: str
    is_right: bool


class _Neighbours(NamedTuple):
    """One query of one model, and what was found, best first."""

    model: str
    path: Path
    label: str
    average_precision: float  # In [0, 1]; NaN without a positive
    num_positives: int
    found: list[_Neighbour]


def _find_neighbours(
    features: RetrievalFeatures, result: RetrievalResult, query: int, count: int, root: Path
) -> _Neighbours:
    """The best entries of the gallery for one query."""
    gallery = features.rows_of_gallery()
    position = torch.tensor([query], device=gallery.device)
    rows = features.rows_of_queries()[position]
    own = position if features.in_gallery is None else None
    scores, found = nearest_in_gallery(
        features.features[rows], features.gallery_embeddings(), count, own=own
    )
    row = int(rows)
    labels = features.labels.tolist()
    names = features.classes or ()

    def name_of(label: int) -> str:
        return str(names[label]) if 0 <= label < len(names) else f'class {label}'

    neighbours = [
        _Neighbour(root / features.paths[i], score, name_of(labels[i]), labels[i] == labels[row])
        for i, score in zip(gallery[found[0]].tolist(), scores[0].tolist())
    ]
    return _Neighbours(
        result.name,
        root / features.paths[row],
        name_of(labels[row]),
        float(result.average_precision[query]),
        int(result.num_positives[query]),
        neighbours,
    )


# Okabe and Ito's bluish green and vermilion, which differ for any colour vision; the dashes and the
# marks show the same without colour.
_RIGHT = '#009E73'
_WRONG = '#D55E00'
_QUERY = '#555555'
_DASHED = (0, (2, 1.4))
_BACKGROUND = 242
# Pixels of an image's side, and inches of it on the sheet.
_SIDE = 192
_CELL = 1.0
# Inches between images and for the text below them, left of the queries and above all.
_GAP = 0.08
_TEXT = 0.4
_LEFT = 1.6
_TOP = 0.62
_DPI = 140


def _sheet_figure(rows: Sequence[_Neighbours], title: str) -> Figure:
    columns = 1 + max(4, *(len(row.found) for row in rows))
    width = _LEFT + columns * (_CELL + _GAP)
    height = _TOP + len(rows) * (_CELL + _TEXT)
    figure = Figure(figsize=(width, height), facecolor='white')
    sides = dict(left=_LEFT / width, right=1 - _GAP / width, top=1 - _TOP / height)
    gaps = dict(bottom=_TEXT / height, wspace=_GAP / _CELL, hspace=_TEXT / _CELL)
    grid = figure.subplots(len(rows), columns, squeeze=False, gridspec_kw=sides | gaps)
    figure.text(0.08 / width, 1 - 0.2 / height, title, fontsize=10, va='center')
    x = _LEFT / width
    y = 1 - 0.46 / height
    for text, colour in (
        ('query', _QUERY),
        ('✓ same class, solid frame', _RIGHT),
        ('✗ another class, dashed frame', _WRONG),
        ('similarity below', _QUERY),
    ):
        figure.text(x, y, text, fontsize=8, va='center', color=colour)
        x += (0.5 + 0.055 * len(text)) / width
    several = len({row.model for row in rows}) > 1
    pictures: dict[Path, np.ndarray] = {}
    for axes, row in zip(grid, rows):
        for axis, path in zip(axes, (row.path, *(found.path for found in row.found))):
            if path not in pictures:
                pictures[path] = _read(path)
            axis.imshow(pictures[path], interpolation='nearest')
        for axis in axes:
            axis.set_axis_off()
        _frame(axes[0], _QUERY, '-', 1.0)
        lines = [fit_text(row.model, _LEFT - 0.2, 8)] if several else []
        if not math.isnan(row.average_precision):
            lines.append(f'AP {100 * row.average_precision:.1f}')
        lines.append(f'{row.num_positives:,} in gallery')
        style = dict(transform=axes[0].transAxes, ha='right', va='top', fontsize=8, linespacing=1.3)
        label = fit_text(row.label, _LEFT - 0.2, 8, 'bold')
        axes[0].text(-0.08, 0.97, label, weight='bold', **style)
        axes[0].text(-0.08, 0.8, '\n'.join(lines), **style)
        for axis, found in zip(axes[1:], row.found):
            colour, line, mark = (_RIGHT, '-', '✓') if found.is_right else (_WRONG, _DASHED, '✗')
            _frame(axis, colour, line, 2.2)
            style = dict(transform=axis.transAxes, ha='center', va='top')
            axis.text(0.5, -0.05, f'{mark} {found.score:.3f}', fontsize=8, color=colour, **style)
            if not found.is_right:
                label = fit_text(found.label, _CELL + 0.03, 6.5)
                axis.text(0.5, -0.19, label, fontsize=6.5, color=_QUERY, **style)
    return figure


def _read(path: Path) -> np.ndarray:
    """An image fitted into a square, as a person would see it."""
    if not path.is_file():
        what = f'image {str(path)!r} does not exist'
        fix = 'pass the folder that the paths of the features start from (--image-root).'
        raise MissingFileError(what, fix)
    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image).convert('RGB')
        square = ImageOps.pad(image, (_SIDE, _SIDE), color=(_BACKGROUND,) * 3)
    return np.asarray(square)


def _frame(axis: Axes, colour: str, line: str | tuple, width: float) -> None:
    place = dict(transform=axis.transAxes, clip_on=False, fill=False)
    axis.add_patch(
        Rectangle((0, 0), 1, 1, edgecolor=colour, linestyle=line, linewidth=width, **place)
    )


_TITLES = {
    'random': 'random queries',
    'worst': 'queries of the lowest average precision',
    'differing': 'queries on which average precision differs most',
}


def draw_sheets(
    models: Mapping[str, RetrievalFeatures],
    results: Sequence[RetrievalResult],
    folder: str | os.PathLike,
    *,
    sheets: Sequence[str] = CHOICES,
    num_queries: int = 8,
    top_k: int = 10,
    root: str | os.PathLike = '.',
) -> list[Path]:
    """Draw ``sheet_<choice>_<model>.png`` and ``sheet_differing.png``; features have paths."""
    first = next(iter(models.values()))
    labels = first.labels[first.rows_of_queries()].cpu().numpy()
    by_name = {result.name: result for result in results}
    paths = []

    def draw(how: str, title: str, names: Sequence[str], part: str, count: int) -> None:
        """Draw a sheet: of each query a row by one model, or by the best and the worst of all."""
        precision = [by_name[name].average_precision for name in names]
        rows = []
        for query in _select_queries(precision, labels, how, count):
            order = sorted(names, key=lambda name: -by_name[name].average_precision[query])
            for name in dict.fromkeys((order[0], order[-1])):
                found = _find_neighbours(models[name], by_name[name], query, top_k, Path(root))
                rows.append(found)
        file = Path(folder) / f'sheet_{part}.png'
        paths.append(save(_sheet_figure(rows, title), file, dpi=_DPI, has_photos=True))

    for how in sheets:
        title = _TITLES[how]
        if how != 'differing':
            for name in by_name:
                part = f'{how}_{safe_name(name)}'
                draw(how, f'{shorten(name, 40)}: {title}', [name], part, num_queries)
        elif len(results) > 1:
            # Two rows a query, so half as many of them.
            draw(how, title.capitalize(), [*by_name], how, max(num_queries // 2, 1))
    return paths
