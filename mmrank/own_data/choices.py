"""What a config for a small data set should say, chosen from the boxes that are there."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmrank.errors import UserError
from mmrank.own_data.anchors import FEW, Matches, SomeImages, compare_anchors, some_images
from mmrank.own_data.folder import Split

#: Longest side of an image in training, by ``small``.
LONGEST_SIDE = {False: 1024, True: 320}
#: An image is not shrunk below the size at which a tenth of its boxes are smaller, in pixels.
SMALLEST_BOX = 12.0
#: For a CPU an image is enlarged by at most 1.3, up to 640 pixels, until the median box has these.
MEDIAN_BOX = 28.0
MOST_ENLARGED = 1.3
LONGEST_ENLARGED = 640
#: Steps of a whole training, and its fewest epochs, by ``small``; and the most epochs.
STEPS = {False: 2000, True: 320}
FEWEST_EPOCHS = {False: 6, True: 2}
MOST_EPOCHS = 72
#: mmdet's config of each detector.
BASES = {
    'atss': 'atss/atss_r50_fpn_1x_coco.py',
    'retinanet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
    'faster-rcnn': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
    'rtmdet': 'rtmdet/rtmdet_{}_8xb32-300e_coco.py',
}
#: Rates of AdamW for 4 images a step, with ImageNet weights and from scratch. On five sets half and
#: twice of 5e-4 are 3.1 and 1.5 mAP behind it, on average.
ADAMW_RATE = {True: 5e-4, False: 2e-3}
#: Rates of mmdet's configs for 16 images a step, RTMDet's of AdamW, the others of SGD.
STOCK_RATE = {'atss': 0.01, 'retinanet': 0.01, 'faster-rcnn': 0.02, 'rtmdet': 0.004 * 16 / 256}


@dataclass
class Choices:
    """Settings of a config, with a row ``(setting, value, why)`` for each and warnings."""

    detector: str
    backbone: str
    small: bool
    classes: tuple[str, ...]
    scale: tuple[int, int]
    anchor_scale: int | None
    batch_size: int
    learning_rate: float
    epochs: int
    val_interval: int
    warm_up: int
    log_interval: int
    load_from: str | None
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def choose(
    splits: dict[str, Split],
    detector: str,
    backbone: str,
    small: bool,
    batch_size: int | None = None,
    epochs: int | None = None,
    load_from: str | None = None,
) -> Choices:
    """Choose all settings of a config of a detector, a key of :data:`BASES`.

    ``backbone`` is ``'lite0'``, ``'r18'`` or ``'r50'``, of RTMDet ``'tiny'`` or ``'s'``. ``small``
    is for a CPU: small images and a narrow network, ResNets from scratch. ``batch_size`` and
    ``epochs`` None are chosen, too. ``load_from`` has weights to start from.
    """
    train = splits['train']
    sides = np.sqrt(train.boxes.prod(1))
    scale, enlarged = _choose_scale(np.median(train.sizes, axis=0), sides, small)
    if detector == 'rtmdet':
        # It fills its images up to squares, of steps of its largest stride.
        scale = (32 * math.ceil(scale[0] / 32),) * 2
    images = some_images(train.report.columns, train.sizes, scale)
    # RTMDet has points, which have no size.
    matches = compare_anchors(BASES[detector], images) if detector != 'rtmdet' else []
    anchors = max(matches, key=lambda x: x.fit_of_classes(images.labels), default=None)
    num_images = train.report.num_images - train.report.num_empty_images
    if batch_size is None:
        batch_size = 4 if small else max(2, min(8, num_images // 20))
    steps = math.ceil(num_images / batch_size)
    if epochs is None:
        # Enlarged images take more time: fewer steps keep it.
        epochs = math.ceil(STEPS[small] / enlarged**2 / steps)
        epochs = max(FEWEST_EPOCHS[small], min(MOST_EPOCHS, epochs))
    rate = STOCK_RATE[detector] * batch_size / 16
    if small:
        rate = ADAMW_RATE[backbone == 'lite0'] * math.sqrt(batch_size / 4)
    chosen = Choices(
        detector,
        backbone,
        small,
        classes=tuple(name for name, count in train.report.counts.items() if count.total),
        scale=scale,
        anchor_scale=anchors.scale if anchors else None,
        batch_size=batch_size,
        learning_rate=float(f'{rate:.2g}'),
        epochs=epochs,
        val_interval=max(1, epochs // 12),
        warm_up=min(500, max(1, steps * epochs // 10)),
        log_interval=max(1, min(10, steps // 2)),
        load_from=load_from,
    )
    _explain(chosen, train, matches, anchors, images.labels, steps)
    _warn(chosen, splits, images, anchors)
    return chosen


def find_weights(given: str | None, detector: str, backbone: str, small: bool) -> str | None:
    """``load_from`` of a config, for ``--weights``: mmdet's URL for ``'coco'``, else as given."""
    if given == 'coco':
        if small or backbone in ('lite0', 'r18'):
            what = f'--weights coco: mmdet has none of {detector}-{backbone}{" --small" * small}'
            raise UserError(what, f'--model {detector}-r50 or rtmdet-tiny, without --small')
        from mmengine.hub import get_config  # which takes seconds

        return get_config(f'mmdet::{BASES[detector].format(backbone)}', pretrained=True).model_path
    if given is not None and '://' not in given and not Path(given).is_file():
        raise UserError(f'--weights {given} is not a file', 'a .pth file, or --weights coco')
    return given


def _choose_scale(
    image: np.ndarray, sides: np.ndarray, small: bool
) -> tuple[tuple[int, int], float]:
    """Scale for mmdet's ``Resize``, and how much of it is enlarging for small boxes.

    Of the (2,) width and height of the median image, and the (n,) square roots of the areas of the
    boxes.
    """
    shrink = min(1.0, LONGEST_SIDE[small] / image.max())
    tenth = float(np.percentile(sides, 10))
    # Small boxes keep their pixels, as far as the image has them.
    shrink = min(1.0, max(shrink, SMALLEST_BOX / tenth))
    enlarged = 1.0
    if small:
        room = LONGEST_ENLARGED / (image.max() * shrink)
        wanted = MEDIAN_BOX / (float(np.median(sides)) * shrink)
        enlarged = max(1.0, min(MOST_ENLARGED, room, wanted))
        shrink *= enlarged
    # The longer side first, as mmdet writes it; which side it is does not matter there.
    return (round(image.max() * shrink), round(image.min() * shrink)), enlarged


def _explain(
    chosen: Choices,
    train: Split,
    matches: list[Matches],
    anchors: Matches | None,
    labels: np.ndarray,
    steps: int,
) -> None:
    counts = [f'{name} {train.report.counts[name].total}' for name in chosen.classes]
    more = f' and {len(counts) - 6} more' if len(counts) > 6 else ''
    width, height = np.median(train.sizes, axis=0).astype(int)
    enlarged = '; small boxes gain by more pixels' * (chosen.scale[0] > max(width, height))
    compared = []
    if anchors is not None:
        stock = matches[0]
        assigned = f"those that mmdet's assigner gives a box fit it by {anchors.shown(labels)}"
        if anchors is not stock:
            assigned += f"; mmdet's own, from {stock.sides[0]} px, by {stock.shown(labels)}"
        compared = [('anchors', '{} to {} px'.format(*anchors.sides), assigned)]
    weights = ('ImageNet', 'downloaded once; offline, and for a CPU: --small')
    optimiser = 'AdamW' if chosen.detector == 'rtmdet' else 'SGD'
    optimiser += ", mmdet's rate by the batch"
    if chosen.small:
        weights = ('from scratch', 'half the width; --small without --model has ImageNet weights')
        optimiser = 'AdamW, by the root of the batch'
    frozen = []
    if chosen.backbone == 'lite0':
        weights = ('ImageNet', 'of EfficientNet-Lite0, from a Python package')
        why_frozen = 'first layers fit any photograph; batches are too small for new statistics'
        frozen = [('frozen', 'stem, first block, batch norm', why_frozen)]
    if chosen.load_from is not None:
        weights = (Path(chosen.load_from).name, 'without heads of another number of classes')
    evaluated = f'{steps * chosen.epochs} steps; evaluated every {chosen.val_interval}'
    chosen.rows += [
        ('classes', str(len(counts)), ', '.join(counts[:6]) + more),
        ('weights', *weights),
        *frozen,
        ('scale', '{}x{}'.format(*chosen.scale), f'images are {width}x{height}{enlarged}'),
        *compared,
        ('batch size', str(chosen.batch_size), f'{steps} steps an epoch'),
        ('learning rate', f'{chosen.learning_rate:g}', optimiser),
        ('warm-up', f'{chosen.warm_up} steps', 'a tenth of the training, at most 500'),
        ('epochs', str(chosen.epochs), evaluated),
        ('checkpoint', 'save_best', 'by coco/bbox_mAP of the validation split'),
        ('loss', 'GradedAPLoss', 'watch coco/bbox_mAP, not the value of the loss'),
    ]


def _warn(
    chosen: Choices, splits: dict[str, Split], images: SomeImages, anchors: Matches | None
) -> None:
    train = splits['train']
    if splits['val'].ann_file.resolve() == train.ann_file.resolve():
        chosen.warnings.append(
            'validation has the images of training, so its AP tells how well the model remembers. '
            'Fix: --val-fraction 0.2, or --val FILE with other images'
        )
    names = np.array([*train.report.names.values()])[images.labels]
    for name in chosen.classes:
        is_named = names == name
        has_anchors = anchors is not None and is_named.any()
        share = float((anchors.count[is_named] < FEW).mean()) if has_anchors else 0.0
        if share >= 0.5:
            side = float(np.median(images.sides()[is_named]))
            chosen.warnings.append(
                f'{share:.0%} of the boxes of {name!r} (median {side:.0f} px, at this scale) get '
                f'fewer than {FEW} anchors, so little is learned from each. Fix: a larger scale in '
                'both pipelines'
            )
        number = train.report.counts[name].total
        if number < 20:
            chosen.warnings.append(
                f'{name!r} has few boxes: its AP will vary ({number} to train on). Fix: more '
                'images of it'
            )
    empty = [name for name, count in train.report.counts.items() if not count.total]
    if empty:
        chosen.warnings.append(
            f'without a box in the training split, so left out: {", ".join(empty)}. Fix: none, if '
            'they are not wanted'
        )
    if len(chosen.classes) == 1:
        chosen.warnings.append(
            'with one class the lead of GradedAPLoss over quality focal is small or none. Fix: '
            'mmrank compare, or train mmrank.QualityFocalLoss, too'
        )
    if train.per_image > 100:
        chosen.warnings.append(
            f'an image has {train.per_image} objects, and COCO counts the best 100 detections. '
            f'Fix: test_cfg.max_per_img={train.per_image} and proposal_nums=(1, 10, '
            f'{train.per_image}) of mmrank.CocoMetric'
        )
