"""Self-balancing weight of the box loss."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .updates import fits_float32, inside_backward


class SelfBalance(nn.Module):
    """Ratio of the whole loss to its box part over the last period.

    Early in training the box part of aLRP is small beside the classification part; multiplied by
    this ratio its gradient keeps up. The ratio of a
    period is that of the means over the period before. Source: aLRP (NeurIPS 2020), section 4.

    Args:
        initial: Ratio in the first period, > 0. The authors take 50.
        period: Iterations in a period, >= 1: those of an epoch.

    Attributes:
        ratio: () float32 buffer.
        sums: (2,) float64 buffer: classification and box losses so far in
            this period.
        steps: () int64 buffer: iterations so far in this period.

    Raises:
        ValueError: On a parameter out of range.
    """

    ratio: Tensor
    sums: Tensor
    steps: Tensor

    def __init__(self, initial: float = 50.0, period: int = 3665) -> None:
        super().__init__()
        if not initial > 0:
            raise ValueError(f'initial must be > 0, got {initial!r}')
        if not (isinstance(period, int) and period >= 1):
            raise ValueError(f'period must be an int >= 1, got {period!r}')
        self.period = period
        self.register_buffer('ratio', torch.tensor(float(initial)))
        self.register_buffer('sums', torch.zeros(2, dtype=torch.float64))
        self.register_buffer('steps', torch.zeros((), dtype=torch.long))

    def _apply(self, fn, recurse=True):
        # model.half() must not round the state.
        dtypes = {name: b.dtype for name, b in self.named_buffers()}
        super()._apply(fn, recurse)
        for name, dtype in dtypes.items():
            setattr(self, name, getattr(self, name).to(dtype))
        return self

    def extra_repr(self) -> str:
        return f'period={self.period}'

    @torch.no_grad()
    def update(self, classification: Tensor, boxes: Tensor, group=None) -> Tensor:
        """Take in the losses of an iteration and return the ratio.

        A loss that is not finite, or an iteration without boxes, does not count.

        Args:
            classification: Scalar classification loss.
            boxes: Scalar box loss, without this ratio.
            group: Process group whose ranks have other losses; None if they are those of the whole
                batch.

        Returns:
            Scalar float32: the ratio to use in this iteration.
        """
        if not self.training or inside_backward():
            return self.ratio.clone()
        ratio = self.ratio.clone()
        losses = torch.stack([classification, boxes]).double()
        if group is not None:
            dist.all_reduce(losses, group=group)
            losses = losses / dist.get_world_size(group)
        usable = losses.isfinite().all() & (losses[1] > 0)
        self.sums += torch.where(usable, losses, 0)
        self.steps += usable
        full = self.steps >= self.period
        renewed = self.sums.sum() / self.sums[1].clamp(min=1e-12)
        usable = full & fits_float32(renewed)
        self.ratio.copy_(torch.where(usable, renewed, self.ratio))
        self.sums.copy_(torch.where(full, 0, self.sums))
        self.steps.copy_(torch.where(full, 0, self.steps))
        return ratio
