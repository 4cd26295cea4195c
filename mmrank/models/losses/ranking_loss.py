"""What the registered listwise losses share."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


def _sigmoid(scores: Tensor) -> Tensor:
    # In half precision all scores near 1 would tie.
    return scores.to(
        torch.promote_types(scores.dtype, torch.float32)
    ).sigmoid()


ACTIVATIONS = {'none': lambda scores: scores, 'sigmoid': _sigmoid}


class RankingLoss(nn.Module):
    """Base of losses that rank all scores of a batch against each other.

    Heads that call a loss once per feature level must gather first (see
    :func:`mmrank.models.dense_heads.ListwiseHead`).

    Attributes:
        diagnostics: Detached scalars of the last forward by name;
            :class:`mmrank.engine.hooks.RankingMonitorHook` logs them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.diagnostics: dict[str, Tensor] = {}

    def logit_centre(self) -> Tensor | None:
        """Raw score that heads show as 0.5 at test time.

        A ranking loss does not care for the offset of the scores, so a fixed
        score threshold needs to be told where the positives lie.

        Returns:
            (1,) or (C,) tensor, or None to leave the scores as they are.
        """
        return None

    @staticmethod
    def world_group():
        """The group of all ranks, or None in a single process."""
        if (
            dist.is_available()
            and dist.is_initialized()
            and dist.get_world_size() > 1
        ):
            return dist.group.WORLD
        return None


def one_vs_all(target: Tensor, num_classes: int) -> Tensor:
    """Positives of every class from class indices or a multi-label matrix.

    Args:
        target: (n,) class indices, ``num_classes`` = background, or (n, C)
            of 0 and 1.
        num_classes: C.

    Returns:
        (n, C) bool.

    Raises:
        ValueError: If the shape does not fit or an index is outside
            ``[0, C]``. On a GPU the index check is a device-side assertion,
            which does not make the host wait.
    """
    if target.dim() == 2 and target.size(1) == num_classes:
        return target > 0
    if target.dim() != 1:
        raise ValueError(
            f'target must be (n,) class indices or (n, {num_classes}) labels '
            f'for {num_classes} classes, got shape {tuple(target.shape)}'
        )
    if target.numel():
        fits = ((target >= 0) & (target <= num_classes)).all()
        if target.device.type != 'cpu':
            torch._assert_async(fits)
        elif not fits:
            raise ValueError(
                f'target holds class indices from {int(target.min())} to '
                f'{int(target.max())}, but the scores have {num_classes} '
                f'classes ({num_classes} = background); set num_classes of '
                'the head to the number of classes of the data set'
            )
    classes = torch.arange(num_classes, device=target.device)
    return target.unsqueeze(1) == classes
