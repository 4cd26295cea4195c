"""Sheets of a retrieval report: queries, and the images found for them framed as right or wrong."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, ImageOps

from mmrank.apis.common.command_line import safe_name
from mmrank.apis.retrieval.report import RetrievalResult
from mmrank.errors import MissingFileError, UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional import nearest_in_gallery
from mmrank.visualization.figures import fit_text, fit_two_lines, shorten

CHOICES = ('random', 'worst', 'best', 'differing')


def select_queries(
    average_precision: Sequence[np.ndarray], labels: np.ndarray, how: str, count: int, seed: int = 0
) -> list[int]:
    """Choose queries with a positive, of as many different classes as there are."""
    if how not in CHOICES:
        raise ValueError(f'how must be one of {CHOICES}, got {how!r}')
    values = np.stack(list(average_precision))
    key = {
        'random': np.zeros(values.shape[1]),
        'best': -values.mean(0),
        'worst': values.mean(0),
        'differing': -np.ptp(values, axis=0),
    }[how]
    order = np.random.default_rng(seed).permutation(values.shape[1])
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


@dataclass(frozen=True)
class Neighbour:
    """One image that was found."""

    path: Path  # Its file
    score: float  # Similarity to the query
    label: str  # Name of its class
    is_right: bool  # Whether that is the query's class


@dataclass(frozen=True)
class Neighbours:
    """One query of one model."""

    model: str  # Name of the model
    path: Path  # Image file of the query
    label: str  # Name of its class
    average_precision: float  # Of this query, in [0, 1]; NaN without a positive
    num_positives: int  # Right images in the gallery
    found: tuple[Neighbour, ...]  # Best first


def find_neighbours(
    features: RetrievalFeatures,
    result: RetrievalResult,
    queries: Sequence[int],
    count: int = 10,
    root: str | os.PathLike = '.',
) -> list[Neighbours]:
    """Search the gallery for a few queries."""
    if features.paths is None:
        raise UserError(
            f'the features of {result.name!r} have no image paths, which a retrieval sheet needs. '
            'Fix: write them with RetrievalMetric(out_file=...) from samples with '
            "'img_path', or skip the sheets."
        )
    gallery = features.rows_of_gallery()
    positions = torch.as_tensor(list(queries), device=gallery.device)
    rows = features.rows_of_queries()[positions]
    own = positions if features.in_gallery is None else None
    scores, found = nearest_in_gallery(
        features.features[rows], features.gallery_embeddings(), count, own=own
    )
    found = gallery.cpu()[found.cpu()].tolist()
    labels = features.labels.tolist()
    root = Path(root)
    rows_found = []
    for query, row, of_query, of_scores in zip(queries, rows.tolist(), found, scores.tolist()):
        neighbours = []
        for i, score in zip(of_query, of_scores):
            name = _class_name(features, labels[i])
            is_right = labels[i] == labels[row]
            neighbours.append(Neighbour(root / features.paths[i], score, name, is_right))
        ap = result.average_precision[query]
        positives = result.num_positives[query]
        label = _class_name(features, labels[row])
        path = root / features.paths[row]
        rows_found.append(
            Neighbours(result.name, path, label, float(ap), int(positives), tuple(neighbours))
        )
    return rows_found


def _class_name(features: RetrievalFeatures, label: int) -> str:
    names = features.classes or ()
    return str(names[label]) if 0 <= label < len(names) else f'class {label}'


# Okabe and Ito's bluish green and vermilion, which differ for any colour vision; the dashes and the
# marks show the same without colour.
_RIGHT, _WRONG, _QUERY = '#009E73', '#D55E00', '#555555'
_DASHED = (0, (2, 1.4))
_BACKGROUND = 242
# Pixels of an image's side, and inches of it on the sheet.
_SIDE, _CELL = 192, 1.0
# Inches between images and for the text below them, left of the queries and above all.
_GAP, _TEXT, _LEFT, _TOP = 0.08, 0.4, 1.6, 0.62
_DPI = 140


def draw_retrieval_sheet(
    rows: Sequence[Neighbours], path: str | os.PathLike, title: str = ''
) -> Path:
    """Draw a sheet: a row a query (of a model), the query first, the best image next."""
    figure = sheet_figure(rows, title)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    return path


def sheet_figure(rows: Sequence[Neighbours], title: str) -> Figure:
    """The figure of a sheet, with an axis for each image."""
    if not rows:
        raise ValueError('draw_retrieval_sheet needs at least one query')
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
        _describe_query(axes[0], row, several)
        for axis, neighbour in zip(axes[1:], row.found):
            _describe(axis, neighbour)
    return figure


def _read(path: Path) -> np.ndarray:
    """An image fitted into a square, as a person would see it."""
    if not path.is_file():
        raise MissingFileError(
            f'image {str(path)!r} does not exist. Fix: pass the folder that the paths of the '
            'features start from (--image-root).'
        )
    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image).convert('RGB')
        square = ImageOps.pad(image, (_SIDE, _SIDE), color=(_BACKGROUND,) * 3)
    return np.asarray(square)


def _frame(axis: Axes, colour: str, line: str | tuple, width: float) -> None:
    place = dict(transform=axis.transAxes, clip_on=False, fill=False)
    axis.add_patch(
        Rectangle((0, 0), 1, 1, edgecolor=colour, linestyle=line, linewidth=width, **place)
    )


def _describe_query(axis: Axes, row: Neighbours, with_model: bool) -> None:
    name = fit_two_lines(row.label, _LEFT - 0.2, 8, 'bold')
    lines = [fit_text(row.model, _LEFT - 0.2, 8)] if with_model else []
    if not math.isnan(row.average_precision):
        lines.append(f'AP {100 * row.average_precision:.1f}')
    lines.append(f'{row.num_positives:,} in gallery')
    style = dict(transform=axis.transAxes, ha='right', va='top', fontsize=8, linespacing=1.3)
    axis.text(-0.08, 0.97, '\n'.join(name), weight='bold', **style)
    axis.text(-0.08, 0.94 - 0.14 * len(name), '\n'.join(lines), **style)


def _describe(axis: Axes, neighbour: Neighbour) -> None:
    right = neighbour.is_right
    score = neighbour.score
    colour, line, mark = (_RIGHT, '-', '✓') if right else (_WRONG, _DASHED, '✗')
    _frame(axis, colour, line, 2.2)
    # Dot products may be large.
    number = f'{score:.3f}' if abs(score) < 10 else f'{score:.4g}'
    style = dict(transform=axis.transAxes, ha='center', va='top')
    axis.text(0.5, -0.05, f'{mark} {number}', fontsize=8, color=colour, **style)
    if not right:
        label = fit_text(neighbour.label, _CELL + 0.03, 6.5)
        axis.text(0.5, -0.19, label, fontsize=6.5, color=_QUERY, **style)


_TITLES = {
    'random': 'random queries',
    'best': 'queries of the highest average precision',
    'worst': 'queries of the lowest average precision',
    'differing': 'queries on which average precision differs most',
}


def draw_sheets(
    models: Mapping[str, RetrievalFeatures],
    results: Sequence[RetrievalResult],
    folder: str | os.PathLike,
    *,
    sheets: Sequence[str] = ('random', 'worst', 'differing'),
    num_queries: int = 8,
    top_k: int = 10,
    seed: int = 0,
    root: str | os.PathLike = '.',
) -> list[Path]:
    """Draw ``sheet_<choice>_<model>.png`` and ``sheet_differing.png``."""
    folder = Path(folder)
    first = next(iter(models.values()))
    labels = first.labels[first.rows_of_queries()].cpu().numpy()
    precision = [result.average_precision for result in results]
    paths = []

    def search(result, queries):
        return find_neighbours(models[result.name], result, queries, top_k, root)

    for how in sheets:
        if how == 'differing':
            if len(results) < 2:
                continue
            # Two rows a query, so half as many of them.
            count = max(num_queries // 2, 1)
            chosen = select_queries(precision, labels, how, count, seed)
            rows = []
            for query in chosen:
                order = sorted(results, key=lambda r, q=query: -r.average_precision[q])
                rows += search(order[0], [query]) + search(order[-1], [query])
            path = folder / 'sheet_differing.png'
            paths.append(draw_retrieval_sheet(rows, path, _TITLES[how].capitalize()))
            continue
        for result, own in zip(results, precision):
            chosen = select_queries([own], labels, how, num_queries, seed)
            path = folder / f'sheet_{how}_{safe_name(result.name)}.png'
            title = f'{shorten(result.name, 40)}: {_TITLES[how]}'
            rows = search(result, chosen)
            paths.append(draw_retrieval_sheet(rows, path, title))
    return paths
