"""Ground truth and the boxes of several detectors, drawn side by side."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.annotations.images import read_image
from mmrank.errors import MissingFileError
from mmrank.evaluation.operating_points import matches_by_class, thresholds_of
from mmrank.pictures.figures import save
from mmrank.pictures.palette import colour

# Inches of a panel's width; the height follows the images.
_PANEL_WIDTH = 3.4
# Points.
_FONT_SIZE = 7
# A box's line, and the dark line around it, which sets it apart from the image.
_LINE = 2.2
_CASING = 3.8
# A box this close to the upper edge, in pixels, has no room for text above.
_TEXT_ROOM = 11
# Classes in the legend at most; more are named at the boxes.
_LONGEST_LEGEND = 12


class _DrawnBox(NamedTuple):
    """A box (x, y, width, height) in pixels; ``is_right``: it matches an object, or was found."""

    box: Sequence[float]
    cat_id: int
    label: str = ''
    is_right: bool = True


def _found_boxes(
    evaluation: COCOeval, image_ids: Sequence[int], at: str = 'f1'
) -> dict[int, list[_DrawnBox]]:
    """By image the boxes above the score at which their class reaches a figure, best first.

    Right ones match an object of their class at IoU 0.5.
    """
    classes = matches_by_class(evaluation)
    thresholds = thresholds_of(classes, at)
    right = {i for x in classes.values() for i in x.found_ids[x.is_right].tolist()}
    drawn = {}
    for image_id in image_ids:
        boxes = evaluation.cocoDt.imgToAnns.get(image_id, [])
        drawn[image_id] = [
            _DrawnBox(x['bbox'], x['category_id'], f'{x["score"]:.2f}', x['id'] in right)
            for x in sorted(boxes, key=lambda x: -x['score'])
            if x['score'] >= thresholds[x['category_id']]
        ]
    return drawn


def draw_detections(
    models: Mapping[str, COCOeval],
    image_dir: str | os.PathLike,
    path: str | os.PathLike,
    num_images: int = 6,
    at: str = 'f1',
) -> Path:
    """Draw a sheet: one row an image, ground truth first, then the models, cut ``at`` a figure."""
    truth = next(iter(models.values())).cocoGt
    # Spread over the images with objects.
    candidates = [i for i in sorted(truth.imgs) if truth.imgToAnns.get(i)] or sorted(truth.imgs)
    if not candidates or num_images < 1:
        raise ValueError(
            f'nothing to draw: {len(candidates)} images with objects, num_images is {num_images}'
        )
    count = min(num_images, len(candidates))
    picks = np.linspace(0, len(candidates) - 1, count).round().astype(int)
    image_ids = [candidates[i] for i in picks]
    pictures = [_read(truth, image_dir, i) for i in image_ids]
    aspects = [p.shape[0] / p.shape[1] for p in pictures]
    width = _PANEL_WIDTH * (1 + len(models))
    height = (_PANEL_WIDTH + 0.05) * sum(aspects) + 0.25 * len(aspects) + 1.1
    figure = Figure(figsize=(width, height), layout='constrained')
    grid = figure.subplots(
        len(image_ids), 1 + len(models), squeeze=False, gridspec_kw={'height_ratios': aspects}
    )
    for axis, name in zip(grid[0], ('ground truth', *models)):
        axis.set_title(name, fontsize=14)
    found = [_found_boxes(x, image_ids, at) for x in models.values()]
    sheet = []
    for i in image_ids:
        anns = [x for x in truth.imgToAnns.get(i, []) if not x.get('iscrowd')]
        objects = [_DrawnBox(x['bbox'], x['category_id']) for x in anns]
        sheet.append([objects, *(boxes[i] for boxes in found)])
    used = sorted({box.cat_id for row in sheet for boxes in row for box in boxes})
    colours = {label: colour(index) for index, label in enumerate(used)}
    if len(used) > _LONGEST_LEGEND:
        # No legend: the labels have the class.
        for row in sheet:
            for boxes in row:
                names = [truth.cats[box.cat_id]['name'] for box in boxes]
                labels = [f'{name} {box.label}'.strip() for name, box in zip(names, boxes)]
                boxes[:] = [box._replace(label=label) for box, label in zip(boxes, labels)]
    for axes, picture, row in zip(grid, pictures, sheet):
        for axis, boxes in zip(axes, row):
            _draw(axis, picture, boxes, colours)
            right = sum(box.is_right for box in boxes)
            axis.set_xlabel(f'{right} right, {len(boxes) - right} wrong', fontsize=12)
        axes[0].set_xlabel(f'{len(row[0])} objects', fontsize=12)
    handles = []
    if len(used) <= _LONGEST_LEGEND:
        for i, own in colours.items():
            name = truth.cats[i]['name']
            handles.append(Line2D([], [], color=own, linewidth=3, label=name))
    cut = 'best-F1 score' if at == 'f1' else f'score of {at}'
    title = f'dashed: no object of that class there; shown: boxes above the {cut} of each class'
    # Eleven letters take an inch.
    title = textwrap.fill(title, int(11 * width))
    style = dict(loc='outside lower center', title_fontsize=11, fontsize=11, frameon=False)
    style['ncols'] = max(2, min(int(width / 1.6), len(handles)))
    legend = figure.legend(handles=handles, title=title, **style)
    legend.get_title().set_multialignment('center')
    return save(figure, path, dpi=110, has_photos=True)


def _read(truth: COCO, image_dir: str | os.PathLike, image_id: int) -> np.ndarray:
    path = Path(image_dir) / truth.imgs[image_id]['file_name']
    if not path.is_file():
        what = f'image file {path} of image id {image_id} does not exist'
        raise MissingFileError(what, 'pass the folder that file_name is relative to.')
    return read_image(path)[..., ::-1]


def _draw(
    axis: Axes, picture: np.ndarray, boxes: list[_DrawnBox], colours: Mapping[int, str]
) -> None:
    """Show one picture with boxes over it; labels never overlap."""
    axis.imshow(picture)
    axis.set(xticks=[], yticks=[])
    corners = [(max(b.box[0], 0), max(b.box[1], 0)) for b in boxes]
    # Above the box, but inside it where the picture ends.
    is_below = [b.box[1] <= _TEXT_ROOM for b in boxes]
    # Points to pixels of the picture.
    text_height = _FONT_SIZE / 72 * picture.shape[1] / _PANEL_WIDTH
    shown = _fitting_labels(corners, [box.label for box in boxes], text_height, is_below=is_below)
    # Best boxes last, on top.
    for item, corner, below, has_label in reversed(list(zip(boxes, corners, is_below, shown))):
        x, y, width, height = item.box
        own = colours[item.cat_id]
        style = dict(fill=False, edgecolor=own, linewidth=_LINE)
        style['linestyle'] = '-' if item.is_right else (0, (2, 1.5))
        casing = [Stroke(linewidth=_CASING, foreground='0.1', alpha=0.75), Normal()]
        axis.add_patch(Rectangle((x, y), width, height, path_effects=casing, **style))
        if has_label:
            place = dict(verticalalignment='top' if below else 'bottom', clip_on=True)
            ground = {'facecolor': own, 'edgecolor': 'none', 'pad': 0.4, 'alpha': 0.85}
            text = dict(fontsize=_FONT_SIZE, color='white', bbox=ground)
            axis.text(*corner, item.label, **text, **place)


# Measures of DejaVu Sans, the labels' font, as shares of its size.
_CHARACTER_WIDTH = 0.68
_LINE_HEIGHT = 1.5


def _fitting_labels(
    corners: Sequence[tuple[float, float]],
    labels: Sequence[str],
    font_size: float,
    *,
    is_below: Sequence[bool],
) -> list[bool]:
    """Choose labels so that no two overlap, the first ones before others."""
    placed = []
    chosen = []
    height = _LINE_HEIGHT * font_size
    for (x, y), label, below in zip(corners, labels, is_below):
        top = y if below else y - height
        right = x + _CHARACTER_WIDTH * font_size * len(label)
        fits = bool(label) and not any(
            x < other_right
            and left < right
            and top < other_top + height
            and other_top < top + height
            for left, other_top, other_right in placed
        )
        if fits:
            placed.append((x, top, right))
        chosen.append(fits)
    return chosen
