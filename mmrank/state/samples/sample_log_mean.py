"""Moving average of each sample, in the log domain."""

import math

import torch
from torch import Tensor

from mmrank.state.samples.steps import moving_log_mean
from mmrank.state.updates import SampleGroups, inside_backward

from .sample_state import SampleState


class SampleLogMean(SampleState):
    """``log s`` of each sample: the log of a moving average of its g.

    ``s <- (1 - beta0) s + beta0 g``, from the first visit on, at whatever epoch that is. Source:
    SogCLR (ICML 2022), algorithm 1; iSogCLR (ICML 2023), eq. 12. A sample that is several times in
    a batch, also on several ranks, takes one step with the mean of its g. One whose g is not finite
    takes none: an overflow in half precision must not spoil later batches.

    Args:
        size: Number of samples in the training set.
        beta0: Weight of the batch in (0, 1].
        storage: See :class:`SampleState`.
        load_state: See :class:`SampleState`.
        dtypes: See :class:`SampleState`.
        **initial: Further quantities of a subclass.

    Attributes:
        log_s: (size,) float32, -inf before the first visit; of a shard its rows.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        size: int,
        beta0: float = 0.9,
        storage: str = 'device',
        load_state: bool = True,
        dtypes: dict[str, torch.dtype] | None = None,
        **initial: float,
    ) -> None:
        if not 0 < beta0 <= 1:
            raise ValueError(f'beta0 must be in (0, 1], got {beta0!r}')
        super().__init__(
            size,
            {'log_s': -math.inf, **initial},
            storage=storage,
            load_state=load_state,
            dtypes=dtypes,
        )
        self.beta0 = beta0

    @property
    def log_s(self) -> Tensor:
        """(size,) float32."""
        return self.column('log_s')

    @property
    def seen(self) -> Tensor:
        """(size,) bool, True for the samples that a batch has shown."""
        return self.log_s.isfinite()

    @torch.no_grad()
    def update(
        self,
        ids: Tensor,
        entries: Tensor,
        log_batch: Tensor,
        gradient: Tensor | None = None,
        counts: list[int] | None = None,
        group=None,
    ) -> None:
        """Take in a batch. Does nothing in eval mode.

        Nor does it when a checkpointed forward is recomputed.

        Args:
            ids: (n,) indices that were fetched last, on the device of the batch.
            entries: (quantities, n) what :meth:`fetch` gave for them.
            log_batch: (n,) log g.
            gradient: (n,) a further quantity that a subclass requires per row.
            counts: Rows of each rank, where they are several.
            group: Process group whose ranks hold different rows; None if
                these are the whole batch.
        """
        if not self.training or inside_backward():
            return
        news = [log_batch] if gradient is None else [log_batch, gradient]
        ids, entries, news = self.joined(ids, entries, torch.stack(news).double(), counts, group)
        groups = SampleGroups(ids)
        usable = news.isfinite().all(0)
        merged = [groups.log_mean_exp(news[0], usable)]
        merged += [groups.mean(x, usable) for x in news[1:]]
        known = groups.sum(usable) > 0
        after = self.stepped(entries, *merged)
        self.store(ids, torch.where(known, after, entries))

    def stepped(self, entries: Tensor, log_batch: Tensor) -> Tensor:
        """One step of each entry.

        Args:
            entries: (quantities, n) float64.
            log_batch: (n,) log g.

        Returns:
            (quantities, n).
        """
        return moving_log_mean(entries[0], log_batch, self.beta0)[None]
