"""How far the similarities of two modalities are from agreeing."""

import torch
from torch import Tensor


def cyclic_consistency(
    view1: Tensor,
    view2: Tensor,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Squared differences of similarities that should be equal.

    For pair j of images I and texts T, summed over the pairs k:
    ``(<I_j, T_k> - <I_k, T_j>)^2`` across and ``(<I_j, I_k> - <T_j, T_k>)^2``
    within the modalities. Source: Goel et al., CyCLIP, NeurIPS 2022, eq. 3
    and 4; the mean over j is the paper's loss.

    Args:
        view1: (n, D) floats I, of length 1 for cosines.
        view2: (n, D) floats T of the same pairs.
        all_view1: (M, D) I to compare with: those of all ranks. None: those
            of the batch.
        all_view2: (M, D), likewise.

    Returns:
        Two (n,), at least float32, >= 0: across and within.

    Raises:
        ValueError: If shapes do not fit.

    Example:
        >>> across, within = cyclic_consistency(torch.eye(2), torch.ones(2, 2))
        >>> within
        tensor([5., 5.])
    """
    if (all_view1 is None) != (all_view2 is None):
        raise ValueError('all_view1 and all_view2 go together')
    if all_view1 is None:
        all_view1, all_view2 = view1, view2
    if (
        view1.dim() != 2
        or view1.shape != view2.shape
        or all_view1.shape != all_view2.shape
        or all_view1.shape[1:] != view1.shape[1:]
    ):
        raise ValueError(
            'view1 and view2 must be (n, D) and those to compare with (M, D), '
            f'got {tuple(view1.shape)}, {tuple(view2.shape)}, '
            f'{tuple(all_view1.shape)} and {tuple(all_view2.shape)}'
        )
    dtype = torch.promote_types(view1.dtype, torch.float32)
    view1, view2, all_view1, all_view2 = (
        x.to(dtype) for x in (view1, view2, all_view1, all_view2)
    )
    with torch.autocast(view1.device.type, enabled=False):
        cross = view1 @ all_view2.t() - view2 @ all_view1.t()
        within = view1 @ all_view1.t() - view2 @ all_view2.t()
        return cross.square().sum(1), within.square().sum(1)
