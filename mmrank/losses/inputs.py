"""What losses are computed from: lists, embeddings, labels, box values."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class RankedLists:
    """L rankings of a batch, what a listwise loss is computed from.

    Attributes:
        pos: (L, P) activated scores of the positives, padded; those of all
            ranks when ``group`` is set.
        pos_mask: (L, P) bool, False for padding.
        scores: (L, N) activated scores of this rank.
        neg_mask: (L, N) bool, True for the negatives.
        values: (L, P) what the head passed on the boxes of the positives
            (their quality or their box loss), or None.
        group: Process group over which the negatives are spread, or None.
        state_group: Process group whose ranks hold other positives than
            those in ``pos``, or None.
        list_classes: (L,) integer class of each list, or None if list i is
            that of class i or there is one list in all.
    """

    pos: Tensor
    pos_mask: Tensor
    scores: Tensor
    neg_mask: Tensor
    values: Tensor | None
    group: object
    state_group: object
    list_classes: Tensor | None = None


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


def _sigmoid(scores: Tensor) -> Tensor:
    # In half precision all scores near 1 would tie.
    return scores.to(
        torch.promote_types(scores.dtype, torch.float32)
    ).sigmoid()


#: By the ``activation`` of the losses.
ACTIVATIONS = {'none': lambda scores: scores, 'sigmoid': _sigmoid}


def one_of(name: str, value, allowed: Collection) -> None:
    """Refuse an unknown choice.

    Args:
        name: Of the setting.
        value: What was given.
        allowed: What could have been given.

    Raises:
        ValueError: If ``value`` is not in ``allowed``.
    """
    if value not in allowed:
        raise ValueError(
            f'{name}={value!r} is unknown; use one of {tuple(allowed)}'
        )


def values_of_rows(values: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """Spread one value for each row with a class over all rows.

    Args:
        values: (n_pos,) values in row order.
        target: (n,) class indices; [0, C) is a class.
        num_classes: C.

    Returns:
        (n,) values, 0 in rows without a class; differentiable in ``values``.

    Raises:
        ValueError: If the shapes do not fit. On a GPU the number of values is
            not compared with that of the rows, which would make the host
            wait.
    """
    if target.dim() != 1:
        raise ValueError(
            'values of boxes need (n,) class indices, one box a row, got a '
            f'target of shape {tuple(target.shape)}'
        )
    has_class = (target >= 0) & (target < num_classes)
    if values.dim() != 1 or (
        target.device.type == 'cpu' and values.numel() != int(has_class.sum())
    ):
        raise ValueError(
            'the values of the boxes must be (n_pos,), one for each row '
            f'with a class, got shape {tuple(values.shape)} for '
            f'{int(has_class.sum())} such rows'
        )
    # Not by masked_scatter, whose backward waits for the device.
    slot = has_class.cumsum(0).mul_(has_class)
    return torch.cat([values.new_zeros(1), values]).gather(0, slot)


def box_values(
    loss,
    target: Tensor,
    num_classes: int,
    quality: Tensor | None,
    box_loss: Tensor | None,
) -> Tensor | None:
    """Box values that a loss requires, laid out by row.

    Args:
        loss: Loss with ``box_input``: None, ``'quality'`` or ``'loss'``.
        target: (n,) class indices; [0, C) is a class.
        num_classes: C.
        quality: (n_pos,) qualities that the head passed, or None.
        box_loss: (n_pos,) box losses that the head passed, or None.

    Returns:
        (n,) values, or None if the loss takes none.

    Raises:
        ValueError: If the head passed something else than the loss takes.
    """
    given = {'quality': quality, 'box_loss': box_loss}
    wanted = {'quality': 'quality', 'loss': 'box_loss'}
    values = given.pop(wanted.get(loss.box_input), None)
    for name, other in given.items():
        if other is not None:
            raise ValueError(
                f'{type(loss).__name__} does not take {name}, got shape '
                f'{tuple(other.shape)}'
            )
    if loss.box_input is None:
        return None
    if values is None:
        raise ValueError(
            f'{type(loss).__name__} requires the boxes of the positives '
            f'({loss.box_input!r}), which this head does not pass; use '
            "type='mmrank.ListwiseHead' or 'mmrank.ListwiseBBoxHead'"
        )
    return values_of_rows(values, target, num_classes)
