"""The Hungarian matching of a DETR of transformers by quality, the idea of Rank-DETR (2023).

The stock cost of the class part is the focal loss of the score, wherever the box lies. By quality
it is ``-score * IoU ** 4``: a query is matched for being sure of a box that fits.
"""

import torch
from torch import Tensor
from transformers.loss import loss_d_fine, loss_rt_detr
from transformers.loss.loss_rt_detr import RTDetrHungarianMatcher

from mmrank.adapters.query_criterion import corners
from mmrank.errors import UserError

IOU_POWER = 4


class QualityMatcher(RTDetrHungarianMatcher):
    """Box costs and weights are the stock matcher's."""

    @torch.no_grad()
    def forward(self, outputs: dict, targets: list[dict]) -> list[tuple[Tensor, Tensor]]:
        from scipy.optimize import linear_sum_assignment
        from torchvision.ops import box_iou, generalized_box_iou

        found = []
        for logits, boxes, objects in zip(outputs['logits'], outputs['pred_boxes'], targets):
            true = objects['boxes']
            both = corners(boxes), corners(true)
            score = logits.sigmoid()[:, objects['class_labels']]
            cost = -self.class_cost * score * box_iou(*both) ** IOU_POWER
            cost = cost + self.bbox_cost * torch.cdist(boxes, true, p=1)
            cost = cost - self.giou_cost * generalized_box_iou(*both)
            pairs = linear_sum_assignment(cost.nan_to_num(nan=1e9).cpu())
            found.append(tuple(torch.as_tensor(x, dtype=torch.int64) for x in pairs))
        return found


def use_match_cost(kind: str) -> None:
    """Match by ``kind``, 'stock' or 'quality', in all models of this process from now on.

    transformers makes its criterion, and the matcher, anew for each batch.
    """
    if kind not in ('stock', 'quality'):
        raise UserError(f'match_cost={kind!r} is unknown. Fix: stock or quality')
    matcher = QualityMatcher if kind == 'quality' else RTDetrHungarianMatcher
    for module in (loss_rt_detr, loss_d_fine):
        module.RTDetrHungarianMatcher = matcher
