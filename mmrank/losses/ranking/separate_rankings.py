"""Evaluates independent copies of stable AP in one call, a list each.

The layers of a decoder are a dozen rankings of one size. One by one, each costs a thousand small
operations, on a GPU a kernel launch each.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mmrank.distributed import join
from mmrank.losses.lists import RankedLists, ranked_lists

from .stable_ap import StableAPLoss, score_sums


class _Separate(nn.Module):
    """What ``functional_call`` can call."""

    def __init__(self, loss: StableAPLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, lists: RankedLists) -> Tensor:
        loss = self.loss
        losses = loss.part_losses([lists])
        totals, numbers = score_sums(lists.pos, lists.positives)
        penalties = loss.penalty(totals, numbers)
        loss.diagnostics = {
            **loss.values_of_lists(lists.counted),
            **loss.averages,
            'score_penalty': penalties.detach(),
            'num_positive': numbers,
        }
        dtype = torch.promote_types(lists.pos.dtype, torch.float32)
        return loss.loss_weight * (losses + penalties).to(dtype)


def can_be_separate(losses: Sequence[nn.Module]) -> TypeGuard[Sequence[StableAPLoss]]:
    """Whether :func:`separate_rankings` does all that calling these copies of one loss does."""
    for loss in losses:
        # A subclass may compute something else, and a hook expects calls.
        has_hooks = loss._forward_hooks or loss._forward_pre_hooks
        if type(loss) is not StableAPLoss or loss.mode != 'flatten' or has_hooks:
            return False
        # Eq. 6 notes the mean of a batch in the module itself.
        if loss.mean_positive.mode == 'exact' or str(loss) != str(losses[0]):
            return False
    return True


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
    all_scores, targets, weights = zip(*calls)
    scores = join(all_scores)
    target = join(targets)
    weight = None if weights[0] is None else join(weights)
    joined_quality = None if quality is None else join(quality)
    values = first.row_values(scores, target, joined_quality, None, None)
    *entries, weight, _ = first.labelled(scores, target, weight)
    entries = [scores, *entries, values, weight]
    rows: list = [None if x is None else x.reshape(len(losses), -1) for x in entries]
    lists = ranked_lists(first.list_settings(), *rows[:-1], weight=rows[-1])

    states = [dict(loss.named_buffers()) for loss in losses]
    together = {}
    for name in states[0]:
        together[f'loss.{name}'] = torch.cat([state[name] for state in states])
    values = functional_call(_Separate(first), together, (lists,))
    diagnostics = first.diagnostics
    with torch.no_grad():
        for name in states[0]:
            for state, kept in zip(states, together[f'loss.{name}'].split(1)):
                state[name].copy_(kept)
    for index, loss in enumerate(losses):
        loss.diagnostics = {key: x[index] for key, x in diagnostics.items()}
    return [*values.unbind()]
