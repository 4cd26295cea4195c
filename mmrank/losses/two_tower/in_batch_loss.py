"""Losses of in-batch sampling as a module that knows the training pairs."""

from torch import Tensor, nn

from mmrank.distributed import world_group
from mmrank.losses.inputs import one_of
from mmrank.losses.setting_names import NamedSettings
from mmrank.losses.two_tower.coefficients import IN_BATCH_MODES
from mmrank.losses.two_tower.cross_sum import BLOCK_SIZE
from mmrank.losses.two_tower.embedding_loss import in_batch_embedding_loss
from mmrank.losses.two_tower.pointwise import Pointwise, build_pointwise
from mmrank.state import PairCounts


class InBatchLoss(NamedSettings, nn.Module):
    """Loss of a batch of positive pairs of a two-tower model.

    Source: "in-batch bias of two-tower models", appendices D.1 and F.3; see
    :func:`mmrank.losses.two_tower_loss` for the modes. The counts of the training pairs are set
    by ``mmrank.PairCountsHook`` or :meth:`set_pairs`; they are not part of a checkpoint.

    **Half precision.** The loss is computed in float32. A gradient beyond 65504 is infinite in
    float16, so that a ``GradScaler`` skips the step.

    Args:
        mode: ``unbiased``, ``unbiased_omega``, ``popularity``, ``pos_neg``, ``in_batch``,
            ``sogram`` or ``in_batch_omega``.
        pointwise: ``square``, ``logistic``, or a
            :class:`mmrank.functional.Pointwise`.
        omega: Weight of the negatives, > 0, only for modes that end in ``_omega``.
        scope: ``global``: the pairs of all ranks are one batch, sampled together; value and
            gradient are those of a single process. ``local``: each rank's pairs are a batch of
            their own.
        block_size: See :func:`mmrank.functional.weighted_cross_sum`.
        loss_weight: Factor of the loss.

    Attributes:
        counts: The :class:`~mmrank.state.PairCounts`.

    Raises:
        TypeError: If ``pointwise`` is neither name nor loss.
        ValueError: On a parameter that is unknown or out of range.

    Example:
        >>> import torch
        >>> loss = InBatchLoss(mode='unbiased', pointwise='square')
        >>> pairs = torch.tensor([0, 1])
        >>> loss.set_pairs(pairs, pairs, (2, 2))
        >>> loss(torch.eye(2), torch.eye(2), pairs, pairs)
        tensor(0.)
    """

    wants_pair_counts = True

    def __init__(
        self,
        mode: str = 'unbiased',
        pointwise: str | Pointwise = 'square',
        omega: float = 1.0,
        scope: str = 'global',
        block_size: int = BLOCK_SIZE,
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__()
        one_of('mode', mode, IN_BATCH_MODES)
        one_of('scope', scope, ('global', 'local'))
        if not omega > 0:
            raise ValueError(f'omega must be > 0, got {omega!r}')
        if omega != 1 and not mode.endswith('_omega'):
            raise ValueError(
                f'omega={omega!r} has no effect with mode={mode!r}; use '
                "mode='unbiased_omega', or remove omega"
            )
        if block_size < 1:
            raise ValueError(f'block_size must be at least 1, got {block_size!r}')
        self.mode, self.omega, self.scope = mode, omega, scope
        self.pointwise = build_pointwise(pointwise)
        self.block_size, self.loss_weight = block_size, loss_weight
        self.counts = PairCounts()

    def extra_repr(self) -> str:
        return (
            f'mode={self.mode!r}, pointwise={type(self.pointwise).__name__}, omega={self.omega}, '
            f'scope={self.scope!r}, block_size={self.block_size}, loss_weight={self.loss_weight}'
        )

    def set_pairs(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        """Set the training pairs; see :meth:`PairCounts.set_pairs`."""
        self.counts.set_pairs(rows, cols, shape)

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        rows: Tensor,
        cols: Tensor,
        left_index: Tensor | None = None,
        right_index: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            left: (B, D) embeddings of the left entities of the pairs; or
                (U, D), one for each distinct one, with ``left_index``.
            right: (B, D) of the right entities, or (V, D).
            rows: (B,) integers in ``[0, m)``: the left entities.
            cols: (B,) integers in ``[0, n)``: the right entities.
            left_index: (B,) row of ``left`` of each pair.
            right_index: (B,) row of ``right`` of each pair.

        Returns:
            Scalar, times ``loss_weight``; may be negative.

        Raises:
            RuntimeError: If the training pairs are not set.
            ValueError: See :func:`mmrank.losses.two_tower_loss`.
        """
        self.counts.require()
        group = None
        if self.scope == 'global':
            group = world_group()
        return self.loss_weight * in_batch_embedding_loss(
            left,
            right,
            rows,
            cols,
            self.counts.row_counts,
            self.counts.col_counts,
            self.counts.num_positives,
            mode=self.mode,
            omega=self.omega,
            pointwise=self.pointwise,
            shape=self.counts.shape,
            left_index=left_index,
            right_index=right_index,
            block_size=self.block_size,
            group=group,
        )
