"""Embeddings with what is known of their images."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.distributed import all_gather_rows, rows_and_dtype


@dataclass
class EmbeddingRows:
    """Embeddings of a batch.

    Attributes:
        embeddings: (n, D) floats.
        labels: (n,) int64 classes.
        ids: (n,) int64 indices of the images in the data set.
    """

    embeddings: Tensor
    labels: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return self.labels.size(0)

    def of_all_ranks(self, group) -> tuple['EmbeddingRows', int, list[int]]:
        """Join the rows of all ranks, whose numbers may differ.

        Args:
            group: Process group.

        Returns:
            The rows, those of rank 0 first, with a gradient that is summed over ranks; where this
            rank's begin; and the rows of each rank.
        """
        counts, dtype = rows_and_dtype(self.embeddings, group)
        numbers = torch.stack([self.labels, self.ids], dim=1)
        numbers = all_gather_rows(numbers, counts, group)
        joined = EmbeddingRows(
            all_gather_rows(self.embeddings.to(dtype), counts, group), *numbers.unbind(1)
        )
        return joined, sum(counts[: dist.get_rank(group)]), counts

    def originals(self, counts: list[int], copies: int) -> 'EmbeddingRows':
        """Rows that are no mixed copies, without gradient.

        Args:
            counts: Rows of each rank, in order.
            copies: How often each rank has its batch, the original first.
        """
        return EmbeddingRows(
            *(
                torch.cat([x[: x.size(0) // copies] for x in values.split(counts)])
                for values in (self.embeddings.detach(), self.labels, self.ids)
            )
        )
