"""Evaluates independent copies of a loss in one batched call.

The layers of a decoder are a dozen rankings of one size. One by one, each costs a thousand small
operations, on a GPU a kernel launch each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mmrank.distributed import join

from .lists import box_values, labelled_entries
from .ranking.stable_ap import Scale, StableAPLoss


class _Separate(nn.Module):
    """What ``functional_call`` can call."""

    def __init__(self, loss: StableAPLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, lists: tuple[Tensor, Tensor, Tensor], box_values: Tensor | None) -> Tensor:
        loss = self.loss
        losses = loss.separate_losses(loss.ranked_lists(*lists, box_values))
        return loss.loss_weight * losses


def can_be_separate(losses: Sequence[nn.Module]) -> bool:
    """Whether :func:`separate_rankings` does all that calling these losses does."""
    return all(_is_plain(loss) and _settings(loss) == _settings(losses[0]) for loss in losses)


def _is_plain(loss: nn.Module) -> bool:
    """Whether it is stable AP of one ranking, which nothing watches."""
    # A subclass may compute something else.
    if type(loss) is not StableAPLoss or loss.mode != 'flatten':
        return False
    # Eq. 6 notes the mean of a batch in the module itself, and a hook expects calls.
    is_exact = loss.mean_positive.mode == 'exact'
    return not (is_exact or loss._forward_hooks or loss._forward_pre_hooks)


def _settings(loss: nn.Module) -> dict:
    plain = (int, float, str, tuple, Scale, type(None))
    return {name: value for name, value in vars(loss).items() if isinstance(value, plain)}


def separate_rankings(
    losses: Sequence[StableAPLoss],
    calls: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    quality: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """``[loss(*call) for loss, call in zip(losses, calls)]`` at once, for copies of one loss.

    Gradients, state and diagnostics are the same as in the calls, the arithmetic in float64 in
    another order. Each call has (n, C) raw scores, (n,) targets and weights or None, of the same
    shapes; ``quality`` has the (n_pos,) of each call for losses with that ``box_input``.
    """
    first = losses[0]
    number = len(losses)
    all_scores, targets, weights = zip(*calls)
    scores = join(all_scores)
    target = join(targets)
    weight = None if weights[0] is None else join(weights)
    entries = scores, *labelled_entries(scores, target, weight, first.num_columns)
    lists = [x.reshape(number, -1) for x in entries]
    values = None
    if quality is not None or (first.box_input is not None and first.requires_boxes):
        joined_quality = None if quality is None else join(quality)
        values = box_values(first, scores, target, joined_quality, None)
    if values is not None:
        values = values.reshape(number, -1)

    states = [dict(loss.named_buffers()) for loss in losses]
    joined = {}
    for name in states[0]:
        joined[f'loss.{name}'] = torch.cat([state[name] for state in states])
    separate = functional_call(_Separate(first), joined, (lists, values))
    with torch.no_grad():
        for name in states[0]:
            for state, own in zip(states, joined[f'loss.{name}'].split(1)):
                state[name].copy_(own)
    together = first.diagnostics
    for index, loss in enumerate(losses):
        loss.diagnostics = {key: x[index] for key, x in together.items()}
    return [*separate.unbind()]
