"""Weight of the box loss beside a ranking loss."""

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.distributed import world_group


@torch.no_grad()
def box_balance(loss_cls: Tensor, loss_bbox: Tensor) -> Tensor:
    """Weight of the box loss beside a ranking loss, ``|L_cls / L_box|``.

    Source: Oksuz et al., Rank & Sort Loss, ICCV 2021, section 4.

    Args:
        loss_cls: Scalar classification loss.
        loss_bbox: Scalar box loss, all its parts together.

    Returns:
        Scalar float32 without gradient, the same on all ranks: that of the losses' means over the
        ranks. 1 where the box loss is 0 or the ratio
        is not finite.
    """
    losses = torch.stack([loss_cls.float(), loss_bbox.float()])
    group = world_group()
    if group is not None:
        # The mean over ranks; the number of ranks leaves the ratio as it is.
        dist.all_reduce(losses, group=group)
    ratio = (losses[0] / losses[1]).abs()
    return torch.where(ratio.isfinite() & (losses[1] != 0), ratio, 1.0)
