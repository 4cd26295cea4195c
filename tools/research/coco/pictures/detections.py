"""Ground truth and the boxes of several detectors, drawn side by side."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.evaluation.box_evaluation import best_f1_thresholds
from mmrank.visualization.figures import fitting_labels
from research.coco.pictures.box_matching import DrawnBox, matched_boxes, true_boxes

# Inches of a panel's width; the height follows the images.
_PANEL_WIDTH = 3.4
# Points.
_FONT_SIZE = 7
# Of a box, and of the dark line around it, which sets it apart from the image.
_LINE, _CASING = 2.2, 3.8
# A box this close to the upper edge, in pixels, has no room for text above.
_TEXT_ROOM = 11
# Classes in the legend at most; more are named at the boxes.
_LONGEST_LEGEND = 12


def draw_detections(
    models: Mapping[str, COCOeval],
    image_dir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    image_ids: Sequence[int] | None = None,
    num_images: int = 6,
    top_k: int | None = None,
    score_thr: float | None = None,
) -> Path:
    """Draw a sheet: one row an image, ground truth first, then the models.

    A box that matches an object of its class at IoU 0.5 is drawn solid, one that does not is
    dashed. By default each model shows the boxes above its own best-F1 score per class, see
    :func:`~mmrank.evaluation.box_evaluation.best_f1_thresholds`.

    Args:
        models: Evaluated ``COCOeval`` by model name, all of one annotation file.
        image_dir: Folder of the images.
        path: Image file to write.
        image_ids: Images to draw; None spreads ``num_images`` over those
            with objects.
        num_images: Rows when ``image_ids`` is None, at least 1.
        top_k: Draw this many best boxes of each image instead.
        score_thr: Draw the boxes with at least this score instead.

    Returns:
        ``path``.

    Raises:
        ValueError: If there is no model or no image, an id is unknown, or
            both ``top_k`` and ``score_thr`` are given.
        FileNotFoundError: If an image file is missing.
    """
    if not models:
        raise ValueError('draw_detections requires results of a model')
    if top_k is not None and score_thr is not None:
        raise ValueError('pass top_k or score_thr to draw_detections, not both')
    truth = next(iter(models.values())).cocoGt
    image_ids = _choose_images(truth, image_ids, num_images)
    pictures = [_read(truth, image_dir, i) for i in image_ids]
    aspects = [p.shape[0] / p.shape[1] for p in pictures]
    figure = Figure(
        figsize=(
            _PANEL_WIDTH * (1 + len(models)),
            (_PANEL_WIDTH + 0.05) * sum(aspects) + 0.25 * len(aspects) + 1.1,
        ),
        layout='constrained',
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(
        len(image_ids), 1 + len(models), squeeze=False, gridspec_kw={'height_ratios': aspects}
    )
    for axis, name in zip(grid[0], ('ground truth', *models)):
        axis.set_title(name, fontsize=14)
    rule, thresholds = _rule(models, top_k, score_thr)
    sheet = []
    for image_id in image_ids:
        row = [true_boxes(truth, image_id)]
        for name, evaluation in models.items():
            row.append(matched_boxes(truth, evaluation.cocoDt, image_id, thresholds[name], top_k))
        sheet.append(row)
    used = {box.cat_id for row in sheet for boxes in row for box in boxes}
    colours = class_colours(truth, used)
    if len(used) > _LONGEST_LEGEND:
        names = {i: truth.cats[i]['name'] for i in used}
        sheet = [[_named(boxes, names) for boxes in row] for row in sheet]
    for axes, picture, row in zip(grid, pictures, sheet):
        for axis, boxes in zip(axes, row):
            _draw(axis, picture, boxes, colours)
        axes[0].set_xlabel(f'{len(row[0])} objects', fontsize=12)
        for axis, boxes in zip(axes[1:], row[1:]):
            right = sum(box.is_right for box in boxes)
            axis.set_xlabel(f'{right} right, {len(boxes) - right} wrong', fontsize=12)
    _add_legend(figure, truth, colours, rule)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _rule(
    models: Mapping[str, COCOeval], top_k: int | None, score_thr: float | None
) -> tuple[str, dict[str, Mapping[int, float] | None]]:
    """What is shown, in words, and thresholds by model and category."""
    if top_k is not None:
        return f'top {top_k} boxes an image', dict.fromkeys(models)
    if score_thr is None:
        return 'boxes above the best-F1 score of each class', {
            name: best_f1_thresholds(e) for name, e in models.items()
        }
    cats = next(iter(models.values())).cocoGt.cats
    return f'boxes with a score from {score_thr:g}', dict.fromkeys(
        models, dict.fromkeys(cats, score_thr)
    )


def _named(boxes: list[DrawnBox], names: Mapping[int, str]) -> list[DrawnBox]:
    """Boxes with their class in the label, as there is no legend."""
    return [replace(box, label=f'{names[box.cat_id]} {box.label}'.strip()) for box in boxes]


def class_colours(truth: COCO, used: Collection[int] | None = None) -> dict[int, tuple]:
    """A distinct colour per category.

    Args:
        truth: Annotations.
        used: Categories that need one; None for all. Where the annotations have at most ten,
            colours do not depend on it.

    Returns:
        RGB or RGBA in [0, 1] by category id, in the order of ids.
    """
    cat_ids = sorted(truth.cats)
    used = set(cat_ids if used is None else used)
    if len(cat_ids) > 10:
        cat_ids = sorted(used)
    if len(cat_ids) <= 10:
        colours = dict(zip(cat_ids, colormaps['tab10'].colors))
    else:
        wheel = colormaps['gist_rainbow'](np.linspace(0, 1, len(cat_ids)))
        colours = dict(zip(cat_ids, map(tuple, wheel)))
    return {i: colour for i, colour in colours.items() if i in used}


def _choose_images(truth: COCO, image_ids: Sequence[int] | None, num_images: int) -> list[int]:
    """The requested ids, or some spread over the images with objects."""
    if image_ids is not None:
        unknown = [i for i in image_ids if i not in truth.imgs]
        if unknown or not image_ids:
            raise ValueError(
                f'image ids {unknown or image_ids} are not in the annotations. Fix: pass ids of '
                f'the evaluated file, for example {sorted(truth.imgs)[:3]}.'
            )
        return list(image_ids)
    candidates = [i for i in sorted(truth.imgs) if truth.imgToAnns.get(i)]
    candidates = candidates or sorted(truth.imgs)
    if not candidates or num_images < 1:
        raise ValueError(
            f'nothing to draw: {len(candidates)} images with objects, num_images is {num_images}'
        )
    count = min(num_images, len(candidates))
    picks = np.linspace(0, len(candidates) - 1, count).round().astype(int)
    return [candidates[i] for i in picks]


def _read(truth: COCO, image_dir: str | os.PathLike, image_id: int) -> np.ndarray:
    """RGB image, uint8 of shape (H, W, 3)."""
    path = Path(image_dir) / truth.imgs[image_id]['file_name']
    if not path.is_file():
        raise FileNotFoundError(
            f'image file {path} of image id {image_id} does not exist. Fix: '
            'pass the folder that file_name is relative to.'
        )
    with Image.open(path) as image:
        return np.asarray(image.convert('RGB'))


def _draw(
    axis: Axes, picture: np.ndarray, boxes: list[DrawnBox], colours: Mapping[int, tuple]
) -> None:
    """Show one picture with boxes over it; labels never overlap."""
    axis.imshow(picture)
    axis.set(xticks=[], yticks=[])
    corners = [(max(b.box[0], 0), max(b.box[1], 0)) for b in boxes]
    # Above the box, but inside it where the picture ends.
    is_below = [b.box[1] <= _TEXT_ROOM for b in boxes]
    shown = fitting_labels(
        corners,
        [box.label for box in boxes],
        # Points to pixels of the picture.
        _FONT_SIZE / 72 * picture.shape[1] / _PANEL_WIDTH,
        is_below=is_below,
    )
    # Best boxes last, on top.
    for item, corner, below, has_label in reversed(list(zip(boxes, corners, is_below, shown))):
        x, y, width, height = item.box
        colour = colours[item.cat_id]
        axis.add_patch(
            Rectangle(
                (x, y),
                width,
                height,
                fill=False,
                edgecolor=colour,
                linewidth=_LINE,
                linestyle='-' if item.is_right else (0, (2, 1.5)),
                path_effects=[Stroke(linewidth=_CASING, foreground='0.1', alpha=0.75), Normal()],
            )
        )
        if has_label:
            axis.text(
                *corner,
                item.label,
                fontsize=_FONT_SIZE,
                color='white',
                verticalalignment='top' if below else 'bottom',
                clip_on=True,
                bbox={'facecolor': colour, 'edgecolor': 'none', 'pad': 0.4, 'alpha': 0.85},
            )


def _add_legend(figure: Figure, truth: COCO, colours: Mapping[int, tuple], rule: str) -> None:
    """Classes by colour unless they are many, what dashes mean, the rule."""
    handles = []
    if len(colours) <= _LONGEST_LEGEND:
        handles = [
            Line2D([], [], color=colour, linewidth=3, label=truth.cats[i]['name'])
            for i, colour in colours.items()
        ]
    figure.legend(
        handles=handles,
        loc='outside lower center',
        ncols=max(2, min(int(figure.get_figwidth() / 1.6), len(handles))),
        title=f'dashed: no object of that class there; shown: {rule}',
        title_fontsize=11,
        fontsize=11,
        frameon=False,
    )
