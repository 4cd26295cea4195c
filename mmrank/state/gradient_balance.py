"""Balances one part of a loss against another, such as classes against boxes."""

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import inside_backward
from mmrank.checks import check_count
from mmrank.distributed import all_reduce_sum, world_group
from mmrank.errors import UserError

from .base import SavedState
from .running_mean import RunningMean

_CHECKPOINTED = (
    'balance_gradients cannot measure gradients inside torch.utils.checkpoint. Fix: call the loss '
    'outside of it, as in loss(checkpoint(model, x), target)'
)

Features = TypeVar('Features', Tensor, Sequence[Tensor])


class GradientBalance(RunningMean):
    """Keeps the class gradient at a share of the box gradient, in the features that both share.

    With ``r = |grad_F L_cls| / |grad_F L_box|`` in the shared features F and the running mean R of
    log r, the factor of the class part is ``target / exp(R)``. So a constant weight of either part
    changes nothing once the mean has settled, and losses of different scale are compared fairly.

    A measurement costs a backward pass through the head for each part. The first :attr:`FIRST`
    batches are all measured, then every :attr:`PERIOD`-th. A batch where a part has no gradient, or
    one that is not finite, does not count. Over ranks the norms are the joined batch's.

    Args:
        target: Norm of the scaled class gradient over the norm of the box gradient, > 0.

    Example:
        >>> balance = GradientBalance(target=0.5)
        >>> features = balance.watch(torch.ones(3, requires_grad=True))
        >>> balance.factor(8 * features.sum(), features.sum())
        tensor(0.0625)
    """

    steps: Tensor  # int64 buffer, batches seen

    FIRST = 50
    PERIOD = 20
    #: Gradients of float16 are multiplied by the first factor that leaves them finite: small ones
    #: are not lost.
    HALF_SCALES = (1024.0, 1.0, 1 / 1024)

    def __init__(self, target: float) -> None:
        super().__init__(momentum=0.1)
        if not (isinstance(target, (int, float)) and 0 < target < float('inf')):
            raise UserError(
                f'balance_gradients must be a number > 0, got {target!r}. Fix: 0.5, or leave it '
                'out to keep the weights of the config'
            )
        self.target = float(target)
        self.add_state('steps', (), dtype=torch.long)
        # The same number on the host, which need not wait for the device; read once after a load.
        self._host_steps: int | None = None
        self._features: list[Tensor] = []

    def watch(self, features: Features) -> Features:
        """Note the features that both parts share, and return them.

        Features of a frozen part of the model get a gradient where this batch is measured.
        """
        self._features = []
        if not (self.moves and torch.is_grad_enabled()):
            return features
        steps = self._steps_on_host()
        if steps >= self.FIRST and steps % self.PERIOD:
            return features
        if isinstance(features, Tensor):
            self._features = [_with_gradient(features)]
            return self._features[0]
        self._features = [_with_gradient(x) for x in features]
        return type(features)(self._features)

    def factor(self, cls: Tensor, box: Tensor) -> Tensor:
        """Scalar float32 factor of the class part, without gradient; 1 before any measurement.

        Args:
            cls: Scalar loss of the classes.
            box: Scalar loss of the boxes. Both are losses of the features that :meth:`watch` noted
                last, and their graph stays.
        """
        if self.training and inside_backward():
            raise UserError(_CHECKPOINTED)
        if self.moves and torch.is_grad_enabled():
            if self._features:
                self._measure(cls, box)
            self._features = []
            # First the host's number, which may still have to be read from the buffer.
            self._host_steps = self._steps_on_host() + 1
            self.steps += 1
        return self.current()

    def current(self) -> Tensor:
        """The factor of the last batch, a scalar float32 for the log."""
        measured = self.num_updates > 0
        return torch.where(measured, self.target * torch.exp(-self.mean), 1.0).squeeze(0)

    def scaled(self, losses: dict, cls_keys: Sequence[str], box_keys: Sequence[str]) -> dict:
        """Copy the losses of a head, the class part scaled.

        Args:
            losses: Losses by name, scalars or lists of scalars.
            cls_keys: Names of the class part.
            box_keys: Names of the box part.
        """
        factor = self.factor(total_of(losses, cls_keys), total_of(losses, box_keys))
        return with_scaled(losses, cls_keys, factor)

    def _measure(self, cls: Tensor, box: Tensor) -> None:
        is_half = any(x.dtype == torch.float16 for x in self._features)
        scales = self.HALF_SCALES if is_half else (1.0,)
        of_cls = _square_norm(cls, self._features, scales)
        of_box = _square_norm(box, self._features, scales)
        squares = all_reduce_sum(torch.stack([of_cls, of_box]), world_group())
        usable = squares.isfinite().all() & (squares > 0).all()
        log_ratio = (squares[0].log() - squares[1].log()) / 2
        self.update(log_ratio.reshape(1, 1), usable.reshape(1, 1))

    def averaged(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        # A plain mean at first, so that the very first batches count alike.
        share = torch.clamp(1 / (self.num_updates + 1), min=self.momentum)
        return mean + share * (batch_mean - mean)

    def _steps_on_host(self) -> int:
        if self._host_steps is None:
            self._host_steps = int(self.steps)
        return self._host_steps

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._host_steps = None


def build_balance(target: float | None, balance_boxes: bool) -> GradientBalance | None:
    """State of the option ``balance_gradients``; ValueError if the boxes are balanced as well."""
    if target is None:
        return None
    if balance_boxes:
        raise UserError(
            f'balance_gradients={target!r} scales the class part and balance_boxes=True the box '
            'part. Fix: leave one of them out'
        )
    return GradientBalance(target)


def total_loss(loss: Tensor | Sequence[Tensor]) -> Tensor:
    """Scalar sum of a loss that a head reports whole or per level."""
    if not isinstance(loss, (list, tuple)):
        return loss.sum()
    return sum(part.sum() for part in loss)


def total_of(losses: dict, keys: Sequence[str]) -> Tensor:
    """Scalar sum of some losses of a head."""
    return sum(total_loss(losses[key]) for key in keys)


def with_scaled(losses: dict, keys: Sequence[str], factor: Tensor) -> dict:
    """Copy the losses of a head, some of them times a factor."""
    found = dict(losses)
    for key in keys:
        loss = losses[key]
        per_level = isinstance(loss, (list, tuple))
        found[key] = [x * factor for x in loss] if per_level else loss * factor
    return found


def _with_gradient(features: Tensor) -> Tensor:
    if features.requires_grad or not features.is_floating_point():
        return features
    return features.detach().requires_grad_()


def _square_norm(loss: Tensor, features: list[Tensor], scales: Sequence[float]) -> Tensor:
    """Float64 square of the gradient's norm, by the first of the scales that leaves it finite."""
    total = torch.zeros((), dtype=torch.float64, device=loss.device)
    if not loss.requires_grad:
        return total
    for scale in reversed(scales):
        factor = torch.full_like(loss, scale)
        try:
            found = torch.autograd.grad(
                loss, features, factor, retain_graph=True, allow_unused=True
            )
        except ValueError as error:
            raise UserError(_CHECKPOINTED) from error
        norms = [(x.double().norm() / scale).square() for x in found if x is not None]
        square = sum(norms, torch.zeros_like(total))
        total = square if scale == scales[-1] else torch.where(square.isfinite(), square, total)
    return total


class SelfBalance(SavedState):
    """Ratio of the whole loss to its box part over the last period.

    Early in training the box part of aLRP is small compared with the classification part;
    multiplied by this ratio its gradient keeps up. The ratio of a period is the ratio of the means
    over the period before, at first 50. Source: aLRP (NeurIPS 2020), section 4.
    """

    ratio: Tensor
    sums: Tensor
    steps: Tensor

    def __init__(self, period: int = 3665) -> None:
        super().__init__()
        check_count('period', period)
        self.period = period
        self.add_state('ratio', (), 50.0)
        self.add_state('sums', (2,), dtype=torch.float64)
        self.add_state('steps', (), dtype=torch.long)
        self._used = self.ratio

    def update(self, classification: Tensor, boxes: Tensor, group=None) -> Tensor:
        """Take in the scalar losses of an iteration, boxes without this ratio; returns the ratio.

        A loss that is not finite, or an iteration without boxes, does not count. With a ``group``
        its ranks have other losses.
        """
        if self.training and inside_backward():
            return self._used.clone()  # by the forward that is run again
        ratio = self.ratio.clone()
        if not self.moves:
            return ratio
        self._used = ratio
        losses = torch.stack([classification, boxes]).detach().double()
        if group is not None:
            losses = all_reduce_sum(losses, group) / dist.get_world_size(group)
        usable = losses.isfinite().all() & (losses[1] > 0)
        self.sums += torch.where(usable, losses, 0)
        self.steps += usable
        full = self.steps >= self.period
        renewed = self.sums.sum() / self.sums[1].clamp(min=1e-12)
        usable = full & renewed.float().isfinite()
        self.ratio.copy_(torch.where(usable, renewed, self.ratio))
        self.sums.copy_(torch.where(full, 0, self.sums))
        self.steps.copy_(torch.where(full, 0, self.steps))
        return ratio
