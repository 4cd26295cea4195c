"""Ground truth and the boxes of several detectors, drawn side by side."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image
from pycocotools import mask as box_overlap
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmrank.visualization.score_thresholds import best_f1_thresholds

_MATCH_IOU = 0.5
# Inches of a panel's width; the height follows the images.
_PANEL_WIDTH = 3.4
# A box this close to the upper edge, in pixels, has no room for text above.
_TEXT_ROOM = 8


@dataclass(frozen=True)
class DrawnBox:
    """A box in pixels, its class and how it fared.

    Attributes:
        box: (x, y, width, height).
        cat_id: Category id.
        label: Text at the box; empty for none.
        is_right: Whether it matches an object (a prediction) or was found
            (an object).
    """

    box: Sequence[float]
    cat_id: int
    label: str = ''
    is_right: bool = True


def draw_detections(
    models: Mapping[str, COCOeval],
    image_dir: str | os.PathLike,
    path: str | os.PathLike,
    *,
    image_ids: Sequence[int] | None = None,
    num_images: int = 6,
    top_k: int | None = None,
) -> Path:
    """Draw a sheet: one row an image, ground truth first, then the models.

    A box that matches an object of its class at IoU 0.5 is drawn solid, one
    that does not is dashed. By default each model shows the boxes above its
    own best-F1 score per class, see
    :func:`~mmrank.visualization.score_thresholds.best_f1_thresholds`.

    Args:
        models: Evaluated ``COCOeval`` by model name, all of one annotation
            file.
        image_dir: Folder of the images.
        path: Image file to write.
        image_ids: Images to draw; None spreads ``num_images`` over those
            with objects.
        num_images: Rows when ``image_ids`` is None, at least 1.
        top_k: Draw this many best boxes of each image instead.

    Returns:
        ``path``.

    Raises:
        ValueError: If there is no model or no image, or an id is unknown.
        FileNotFoundError: If an image file is missing.
    """
    if not models:
        raise ValueError('draw_detections needs the results of a model')
    truth = next(iter(models.values())).cocoGt
    image_ids = _choose_images(truth, image_ids, num_images)
    pictures = [_read(truth, image_dir, i) for i in image_ids]
    aspects = [p.shape[0] / p.shape[1] for p in pictures]
    figure = Figure(
        figsize=(
            _PANEL_WIDTH * (1 + len(models)),
            (_PANEL_WIDTH + 0.05) * sum(aspects) + 0.8,
        ),
        layout='constrained',
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(
        len(image_ids),
        1 + len(models),
        squeeze=False,
        gridspec_kw={'height_ratios': aspects},
    )
    colours = class_colours(truth)
    thresholds = {n: best_f1_thresholds(e) for n, e in models.items()}
    for row, image_id, picture in zip(grid, image_ids, pictures):
        objects = _objects(truth, image_id)
        _draw(row[0], picture, objects, colours)
        for axis, (name, evaluation) in zip(row[1:], models.items()):
            boxes = _predictions(evaluation, image_id, thresholds[name], top_k)
            _draw(axis, picture, boxes, colours)
    rule = f'top {top_k} boxes' if top_k else 'scores above best F1 per class'
    grid[0, 0].set_title('ground truth', fontsize=10)
    for axis, name in zip(grid[0, 1:], models):
        axis.set_title(f'{name} ({rule})', fontsize=10)
    _add_legend(figure, truth, colours)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def class_colours(truth: COCO) -> dict[int, tuple]:
    """A distinct colour per category.

    Args:
        truth: Annotations.

    Returns:
        RGBA in [0, 1] by category id, fixed by the order of ids.
    """
    cat_ids = sorted(truth.cats)
    if len(cat_ids) <= 10:
        return dict(zip(cat_ids, colormaps['tab10'].colors))
    wheel = colormaps['gist_rainbow'](np.linspace(0, 1, len(cat_ids)))
    return dict(zip(cat_ids, map(tuple, wheel)))


def _choose_images(
    truth: COCO, image_ids: Sequence[int] | None, num_images: int
) -> list[int]:
    """The ids asked for, or some spread over the images with objects."""
    if image_ids is not None:
        unknown = [i for i in image_ids if i not in truth.imgs]
        if unknown or not image_ids:
            raise ValueError(
                f'image ids {unknown or image_ids} are not in the '
                'annotations. Fix: give ids of the file evaluated, for '
                f'example {sorted(truth.imgs)[:3]}.'
            )
        return list(image_ids)
    candidates = [i for i in sorted(truth.imgs) if truth.imgToAnns.get(i)]
    candidates = candidates or sorted(truth.imgs)
    if not candidates or num_images < 1:
        raise ValueError(
            f'nothing to draw: {len(candidates)} images with objects, '
            f'num_images is {num_images}'
        )
    count = min(num_images, len(candidates))
    picks = np.linspace(0, len(candidates) - 1, count).round().astype(int)
    return [candidates[i] for i in picks]


def _read(
    truth: COCO, image_dir: str | os.PathLike, image_id: int
) -> np.ndarray:
    """RGB image, uint8 of shape (H, W, 3)."""
    path = Path(image_dir) / truth.imgs[image_id]['file_name']
    if not path.is_file():
        raise FileNotFoundError(
            f'image file {path} of image id {image_id} does not exist. Fix: '
            'give the folder that file_name is relative to.'
        )
    with Image.open(path) as image:
        return np.asarray(image.convert('RGB'))


def _objects(truth: COCO, image_id: int) -> list[DrawnBox]:
    """Ground-truth boxes of one image, crowds left out."""
    anns = truth.imgToAnns.get(image_id, [])
    return [
        DrawnBox(a['bbox'], a['category_id'])
        for a in anns
        if not a.get('iscrowd')
    ]


def _predictions(
    evaluation: COCOeval,
    image_id: int,
    thresholds: Mapping[int, float],
    top_k: int | None,
) -> list[DrawnBox]:
    """Boxes of one image to show, best first, with how they fared."""
    boxes = sorted(
        evaluation.cocoDt.imgToAnns.get(image_id, []),
        key=lambda box: -box['score'],
    )
    if top_k:
        boxes = boxes[:top_k]
    else:
        boxes = [
            b for b in boxes if b['score'] >= thresholds[b['category_id']]
        ]
    left = _objects(evaluation.cocoGt, image_id)
    drawn = []
    for box in boxes:
        match = _best_match(box, left)
        if match is not None:
            left.remove(match)
        drawn.append(
            DrawnBox(
                box['bbox'],
                box['category_id'],
                f'{box["score"]:.2f}',
                match is not None,
            )
        )
    return drawn


def _best_match(box: dict, objects: list[DrawnBox]) -> DrawnBox | None:
    """The object of the box's class that overlaps it most, if enough."""
    same = [o for o in objects if o.cat_id == box['category_id']]
    if not same:
        return None
    overlap = box_overlap.iou(
        [box['bbox']], [list(o.box) for o in same], [0] * len(same)
    )[0]
    best = int(overlap.argmax())
    return same[best] if overlap[best] >= _MATCH_IOU else None


def _draw(
    axis: Axes,
    picture: np.ndarray,
    boxes: list[DrawnBox],
    colours: Mapping[int, tuple],
) -> None:
    """Show one picture with boxes over it."""
    axis.imshow(picture)
    axis.set(xticks=[], yticks=[])
    # Best boxes last, on top.
    for item in reversed(boxes):
        x, y, width, height = item.box
        colour = colours[item.cat_id]
        axis.add_patch(
            Rectangle(
                (x, y),
                width,
                height,
                fill=False,
                edgecolor=colour,
                linewidth=1.5,
                linestyle='-' if item.is_right else (0, (2, 1.5)),
            )
        )
        if item.label:
            axis.text(
                max(x, 0),
                max(y, 0),
                item.label,
                fontsize=5,
                color='white',
                # Above the box, but inside it where the picture ends.
                verticalalignment='bottom' if y > _TEXT_ROOM else 'top',
                clip_on=True,
                bbox={
                    'facecolor': colour,
                    'edgecolor': 'none',
                    'pad': 0.4,
                    'alpha': 0.85,
                },
            )


def _add_legend(
    figure: Figure, truth: COCO, colours: Mapping[int, tuple]
) -> None:
    """Classes by colour (at most 12), and what dashes mean."""
    handles = [
        Line2D([], [], color=colours[i], label=truth.cats[i]['name'])
        for i in sorted(truth.cats)[:12]
    ]
    handles.append(
        Line2D(
            [],
            [],
            color='0.3',
            linestyle='--',
            label='dashed: no object of that class there',
        )
    )
    figure.legend(
        handles=handles,
        loc='outside lower center',
        ncols=min(7, len(handles)),
        fontsize=8,
        frameon=False,
    )
