"""Sheets of a retrieval report: queries, and the images found for them framed as right or wrong."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, ImageOps

from mmrank.errors import UserError
from mmrank.evaluation.gallery_index import GalleryIndex, read_rows
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional import nearest_in_gallery
from mmrank.visualization.figures import fit_text, fit_two_lines, shorten
from research.common.model_entry import safe_name
from research.retrieval.report import RetrievalResult

CHOICES = ('random', 'worst', 'best', 'differing')


def select_queries(
    average_precision: Sequence[np.ndarray], labels: np.ndarray, how: str, count: int, seed: int = 0
) -> list[int]:
    """Choose queries, of as many different classes as there are.

    Queries without a positive are never chosen. Equal ones are chosen at random, not by their place
    in the data set, where one class follows the other.
    """
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
    """One image that was found.

    Attributes:
        path: Its file.
        score: Similarity to the query.
        label: Name of its class.
        is_right: Whether that is the query's class.
    """

    path: Path
    score: float
    label: str
    is_right: bool


@dataclass(frozen=True)
class Neighbours:
    """One query of one model.

    Attributes:
        model: Name of the model.
        path: Image file of the query.
        label: Name of its class.
        average_precision: Of this query, in [0, 1]; NaN where an index searched.
        num_positives: Right images in the gallery.
        found: Best first.
    """

    model: str
    path: Path
    label: str
    average_precision: float
    num_positives: int
    found: tuple[Neighbour, ...]


def find_neighbours(
    features: RetrievalFeatures,
    result: RetrievalResult,
    queries: Sequence[int],
    count: int = 10,
    root: str | os.PathLike = '.',
    index: GalleryIndex | None = None,
) -> list[Neighbours]:
    """Search the gallery for a few queries."""
    if features.paths is None:
        raise UserError(
            f'the features of {result.name!r} have no image paths, which a '
            'retrieval sheet needs. Fix: write them with '
            'RetrievalMetric(out_file=..., path_key=...) from samples with '
            "'img_path', or skip the sheets."
        )
    gallery = features.rows_of_gallery()
    positions = torch.as_tensor(list(queries), device=gallery.device)
    rows = features.rows_of_queries()[positions]
    own = positions if features.in_gallery is None else None
    wanted = read_rows(features.embeddings(), rows)
    stored = features.gallery_embeddings()
    if index is None:
        scores, found = nearest_in_gallery(
            wanted, stored, count, similarity=features.similarity, own=own
        )
    else:
        count = min(count, len(stored) - int(own is not None))
        scores, found = index.search(wanted, count, own)
    found = gallery.cpu()[found.cpu()].tolist()
    labels, root = features.labels.tolist(), Path(root)

    def describe(row: int, score: float, label: int) -> Neighbour:
        return Neighbour(
            path=root / features.paths[row],
            score=score,
            label=_class_name(features, labels[row]),
            is_right=labels[row] == label,
        )

    return [
        Neighbours(
            model=result.name,
            path=root / features.paths[row],
            label=_class_name(features, labels[row]),
            average_precision=float(result.average_precision[query]),
            num_positives=int(result.num_positives[query]),
            found=tuple(
                describe(i, s, labels[row])
                for i, s in zip(of_query, of_scores)
                if s > float('-inf')  # an index may find fewer
            ),
        )
        for query, row, of_query, of_scores in zip(queries, rows.tolist(), found, scores.tolist())
    ]


def _class_name(features: RetrievalFeatures, label: int) -> str:
    names = features.classes
    if names is not None and 0 <= label < len(names):
        return str(names[label])
    return f'class {label}'


# Okabe and Ito's bluish green and vermilion, which differ for any colour vision; the dashes and the
# marks show the same without colour.
_RIGHT, _WRONG, _QUERY = '#009E73', '#D55E00', '#555555'
_BACKGROUND = 242
# Pixels of an image's side, and inches of it on the sheet.
_SIDE, _CELL = 192, 1.0
# Inches below an image for its text, between query and images, above all.
_TEXT, _GAP, _TOP = 0.4, 0.3, 0.62
# Inches for the text left of a query.
_LEFT = 1.6
# Inches between the rows of one query and those of the next.
_APART = 0.22
_DPI = 140


def draw_retrieval_sheet(
    rows: Sequence[Neighbours], path: str | os.PathLike, title: str = ''
) -> Path:
    """Draw a sheet: a row a query, the query first, the best image next.

    Right images have a solid frame and a tick, wrong ones a dashed frame, a cross and the name of
    their class. Scores are below.
    """
    if not rows:
        raise ValueError('draw_retrieval_sheet needs at least one query')
    columns = max(len(row.found) for row in rows)
    pitch = _CELL + 0.08
    width = _LEFT + _CELL + _GAP + max(columns, 4) * pitch
    tops = _row_tops(rows)
    height = tops[-1] + _CELL + _TEXT
    figure = Figure(figsize=(width, height), facecolor='white')
    FigureCanvasAgg(figure)
    several = len({row.model for row in rows}) > 1
    figure.text(0.08 / width, 1 - 0.2 / height, title, fontsize=10, va='center')
    _draw_key(figure, width, height)
    pictures: dict[Path, np.ndarray] = {}

    def place(column: float, top: float) -> Axes:
        bottom = height - top - _CELL
        return figure.add_axes((column / width, bottom / height, _CELL / width, _CELL / height))

    for top, row in zip(tops, rows):
        axis = place(_LEFT, top)
        _show(axis, row.path, pictures)
        _frame(axis, _QUERY, '-', 1.0)
        _describe_query(axis, row, several)
        for number, neighbour in enumerate(row.found):
            axis = place(_LEFT + _CELL + _GAP + number * pitch, top)
            _show(axis, neighbour.path, pictures)
            _describe(axis, neighbour)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    return path


def _row_tops(rows: Sequence[Neighbours]) -> list[float]:
    """Inches from above; rows of one query are grouped."""
    tops, top = [], _TOP
    for index, row in enumerate(rows):
        follows = index > 0 and row.path == rows[index - 1].path
        next_follows = index + 1 < len(rows) and rows[index + 1].path == row.path
        if index > 0 and not follows and next_follows:
            top += _APART
        tops.append(top)
        top += _CELL + _TEXT
    return tops


def _draw_key(figure: Figure, width: float, height: float) -> None:
    """Explain the frames, to the right of the title's line."""
    y = 1 - 0.46 / height
    figure.text((_LEFT + 0.02) / width, y, 'query', fontsize=8, va='center')
    x = _LEFT + _CELL + _GAP
    for text, colour, line in (
        ('✓ same class', _RIGHT, '-'),
        ('✗ another class', _WRONG, (0, (2, 1.4))),
    ):
        figure.add_artist(
            Rectangle(
                (x / width, y - 0.06 / height),
                0.2 / width,
                0.12 / height,
                fill=False,
                edgecolor=colour,
                linestyle=line,
                linewidth=1.6,
                transform=figure.transFigure,
            )
        )
        figure.text((x + 0.27) / width, y, text, fontsize=8, va='center')
        x += 1.35
    figure.text(x / width, y, 'similarity below', fontsize=8, va='center', color='#555')


def _show(axis: Axes, path: Path, pictures: dict[Path, np.ndarray]) -> None:
    if path not in pictures:
        pictures[path] = _read(path)
    axis.imshow(pictures[path], interpolation='nearest')
    axis.set_axis_off()


def _read(path: Path) -> np.ndarray:
    """An image fitted into a square, as a person would see it."""
    if not path.is_file():
        raise FileNotFoundError(
            f'image {str(path)!r} does not exist. Fix: pass the folder that '
            'the paths of the features start from (--image-root).'
        )
    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image).convert('RGB')
        image = ImageOps.contain(image, (_SIDE, _SIDE))
    square = Image.new('RGB', (_SIDE, _SIDE), (_BACKGROUND,) * 3)
    corner = (_SIDE - image.width) // 2, (_SIDE - image.height) // 2
    square.paste(image, corner)
    return np.asarray(square)


def _frame(axis: Axes, colour: str, line, width: float) -> None:
    axis.add_patch(
        Rectangle(
            (0, 0),
            1,
            1,
            transform=axis.transAxes,
            fill=False,
            edgecolor=colour,
            linestyle=line,
            linewidth=width,
            clip_on=False,
        )
    )


def _describe_query(axis: Axes, row: Neighbours, with_model: bool) -> None:
    lines = [
        '' if math.isnan(row.average_precision) else f'AP {100 * row.average_precision:.1f}',
        f'{row.num_positives:,} in gallery',
    ]
    if with_model:
        lines.insert(0, fit_text(row.model, _LEFT - 0.2, 8))
    name = fit_two_lines(row.label, _LEFT - 0.2, 8, 'bold')
    axis.text(
        -0.08,
        0.97,
        '\n'.join(name),
        transform=axis.transAxes,
        ha='right',
        va='top',
        fontsize=8,
        weight='bold',
        linespacing=1.2,
    )
    axis.text(
        -0.08,
        0.94 - 0.14 * len(name),
        '\n'.join(lines),
        transform=axis.transAxes,
        ha='right',
        va='top',
        fontsize=8,
        linespacing=1.4,
    )


def _describe(axis: Axes, neighbour: Neighbour) -> None:
    right = neighbour.is_right
    colour = _RIGHT if right else _WRONG
    _frame(axis, colour, '-' if right else (0, (2, 1.4)), 2.2)
    score = neighbour.score
    # Dot products may be large.
    number = f'{score:.3f}' if abs(score) < 10 else f'{score:.4g}'
    text = f'{"✓" if right else "✗"} {number}'
    axis.text(
        0.5, -0.05, text, transform=axis.transAxes, ha='center', va='top', fontsize=8, color=colour
    )
    if not right:
        axis.text(
            0.5,
            -0.19,
            fit_text(neighbour.label, _CELL + 0.03, 6.5),
            transform=axis.transAxes,
            ha='center',
            va='top',
            fontsize=6.5,
            color='#555555',
        )


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
    indices: Mapping[str, GalleryIndex] | None = None,
) -> list[Path]:
    """Draw ``sheet_<choice>_<model>.png`` and ``sheet_differing.png``."""
    folder = Path(folder)
    for old in folder.glob('sheet_*.png'):
        old.unlink()
    first = next(iter(models.values()))
    labels = first.labels[first.rows_of_queries()].cpu().numpy()
    precision = [
        result.average_precision
        if result.has_ranking
        else np.where(result.num_positives > 0, 0.0, np.nan)
        for result in results
    ]
    if indices and set(sheets) - {'random'}:
        raise UserError(
            f'sheets {sorted(set(sheets) - {"random"})} choose queries by average precision, which '
            'an index does not give. Fix: leave out --index, or draw --sheets random'
        )
    paths = []

    def search(result, queries):
        features = models[result.name]
        index = indices[result.name] if indices else None
        return find_neighbours(features, result, queries, top_k, root, index)

    for how in sheets:
        if how == 'differing':
            if len(results) < 2:
                continue
            # Two rows a query, so half as many of them.
            count = max(num_queries // 2, 1)
            chosen = select_queries(precision, labels, how, count, seed)
            rows = [
                row
                for query in chosen
                for result in _extremes(results, query)
                for row in search(result, [query])
            ]
            path = folder / 'sheet_differing.png'
            paths.append(draw_retrieval_sheet(rows, path, _TITLES[how].capitalize()))
            continue
        for result, own in zip(results, precision):
            chosen = select_queries([own], labels, how, num_queries, seed)
            path = folder / f'sheet_{how}_{safe_name(result.name)}.png'
            title = f'{shorten(result.name, 40)}: {_TITLES[how]}'
            if result.is_approximate:
                title += ', approximate search'
            rows = search(result, chosen)
            paths.append(draw_retrieval_sheet(rows, path, title))
    return paths


def _extremes(
    results: Sequence[RetrievalResult], query: int
) -> tuple[RetrievalResult, RetrievalResult]:
    """The models with the highest and the lowest AP of a query.

    The first and the last where all are equal.
    """
    order = sorted(results, key=lambda r: -r.average_precision[query])
    return order[0], order[-1]
