"""ATSS for anchor heads that do not report how many anchors a level has."""

import torch
from mmdet.models.task_modules.assigners import ATSSAssigner
from torch import Tensor

# More pyramid levels than any FPN has: longer runs are not levels.
_MAX_LEVELS = 12


def count_level_priors(priors: Tensor) -> list[int]:
    """Number of anchors per level of (n, 4) anchors as x1, y1, x2, y2, level after level.

    With one anchor per location all anchors of a level have one size, which doubles from level to
    level.
    """
    widths = (priors[:, 2] - priors[:, 0]).round()
    counts = torch.unique_consecutive(widths, return_counts=True)[1].tolist()
    if len(counts) > _MAX_LEVELS:
        raise ValueError(
            f'the anchors change size {len(counts)} times, so there are several per location; ATSS '
            'in a RetinaHead needs anchor_generator=dict(ratios=[1.0], scales_per_octave=1, ...)'
        )
    return counts


class AnchorATSSAssigner(ATSSAssigner):
    """mmdet's ATSS assigner for a ``RetinaHead``; see ``ATSSAssigner`` for the options.

    Stable AP (2025), section 7.2, trains RetinaNet with one square anchor per location and the ATSS
    assigner. mmdet's ``ATSSHead`` adds a centerness branch; its ``RetinaHead`` has none but does
    not pass the number of anchors per level, which is read off the anchors here.
    """

    def __init__(self, **kwargs) -> None:
        # With its scope, so that it is found under any default scope.
        kwargs.setdefault('iou_calculator', dict(type='mmdet.BboxOverlaps2D'))
        super().__init__(**kwargs)

    def assign(self, pred_instances, gt_instances, gt_instances_ignore=None, **kwargs):
        """Assign as ``ATSSAssigner`` does, with the call of ``MaxIoUAssigner``."""
        levels = count_level_priors(pred_instances.priors)
        return super().assign(pred_instances, levels, gt_instances, gt_instances_ignore)
