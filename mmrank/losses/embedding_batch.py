"""What a loss on embeddings is computed from."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class EmbeddingBatch:
    """Queries and the gallery that they search.

    In distributed training with a loss of ``scope='global'`` every rank holds
    the queries of all ranks and its own share of the gallery; the gradient of
    the queries is summed over ranks by whoever gathered them.

    Attributes:
        queries: (Q, D) embeddings.
        query_labels: (Q,) integer classes.
        gallery: (G, D) embeddings: the images of this rank's batch, and
            entries of a memory without gradient.
        gallery_labels: (G,) integer classes.
        is_itself: (Q, G) bool, True where the gallery entry is the query's
            own image, which it does not search for.
    """

    queries: Tensor
    query_labels: Tensor
    gallery: Tensor
    gallery_labels: Tensor
    is_itself: Tensor

    @classmethod
    def of_one_batch(cls, embeddings: Tensor, labels: Tensor):
        """Every image of a batch searches all others.

        Args:
            embeddings: (B, D) floats.
            labels: (B,) integer classes.
        """
        itself = torch.eye(
            len(labels), dtype=torch.bool, device=embeddings.device
        )
        return cls(embeddings, labels, embeddings, labels, itself)

    def scores(self) -> Tensor:
        """(Q, G) inner products, at least in float32."""
        dtype = torch.promote_types(self.queries.dtype, torch.float32)
        # Autocast would put the product into half precision, where close
        # cosines tie.
        with torch.autocast(self.queries.device.type, enabled=False):
            return self.queries.to(dtype) @ self.gallery.to(dtype).t()

    def is_positive(self) -> Tensor:
        """(Q, G) bool: of the query's class, but not its own image."""
        return self._same() & ~self.is_itself

    def is_negative(self) -> Tensor:
        """(Q, G) bool: of another class."""
        return ~self._same() & ~self.is_itself

    def _same(self) -> Tensor:
        return self.query_labels[:, None] == self.gallery_labels
