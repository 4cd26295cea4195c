"""What heads pass to losses in addition to scores: embeddings, values of boxes."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import can_sync, violated
from mmrank.distributed import all_gather_lists, join, scale_gradient
from mmrank.errors import UserError
from mmrank.tensors import at_least_float32, check_floats, check_tensors, refuse_nan


def check_embeddings(**embeddings: Tensor) -> None:
    """Check that each is a matrix of floats, else TypeError or ValueError."""
    check_floats(**embeddings)
    for name, rows in embeddings.items():
        if rows.dim() != 2:
            raise ValueError(
                f'{name} must be (rows, length) embeddings, got shape {tuple(rows.shape)}'
            )


def class_numbers(name: str, labels: Tensor) -> Tensor:
    """Labels that number classes, integers as int64; ValueError for one-hot and other labels."""
    if labels.dtype == torch.bool and labels.dim() == 2:
        raise UserError(
            f'{name} must be the numbers of classes, got bool of shape {tuple(labels.shape)}. Fix: '
            'labels.long().argmax(1) of one-hot labels; several classes an image are not supported'
        )
    if not labels.is_floating_point():
        return labels.long()  # a smaller type wraps the number of classes it is compared with
    refuse_nan(name, labels, 'give each image its class')
    if labels.numel() and violated(
        (labels == labels.floor()).all(), f'{name} are no whole numbers'
    ):
        raise UserError(
            f'{name} must be whole numbers of classes, got numbers from {labels.min().item()} to '
            f'{labels.max().item()}. Fix: labels.long()'
        )
    return labels


def _levels(name: str, labels: Tensor) -> Tensor:
    """(L, n) classes of each level, from coarse to fine, of (n,) or (n, L) labels."""
    labels = class_numbers(name, labels)
    return labels.t() if labels.dim() == 2 else labels[None]


def _largest_entry(x: Tensor) -> Tensor:
    """Scalar float64, the largest absolute value; read in one pass."""
    low, high = x.detach().aminmax()
    return torch.maximum(high, -low).double()


@dataclass
class EmbeddingBatch:
    """Queries and the gallery that they search.

    In distributed training with a loss of ``scope='global'`` every rank holds the queries of all
    ranks and its own share of the gallery; the gradient of the queries is summed over ranks by the
    code that gathered them.
    """

    queries: Tensor  # (Q, D) embeddings
    #: (Q,) integer classes, or (Q, L) from coarse to fine, each level refining the one before; kept
    #: is the finest, see :meth:`shared_levels`.
    query_labels: Tensor
    #: (G, D) embeddings: the images of this rank's batch, and entries of a memory without gradient.
    gallery: Tensor
    gallery_labels: Tensor  # (G,), or (G, L)
    #: (Q, G) bool, True where the entry is the query's own image, or another that it does not
    #: search for.
    is_itself: Tensor
    #: (n, D) embeddings of this rank's batch, of which queries and gallery are made; None: queries.
    rows: Tensor | None = None

    def __post_init__(self) -> None:
        check_tensors(query_labels=self.query_labels, gallery_labels=self.gallery_labels)
        check_embeddings(queries=self.queries, gallery=self.gallery)
        if self.queries.size(1) != self.gallery.size(1):
            raise ValueError(
                f'queries and gallery must be embeddings of one length, got {self.queries.size(1)} '
                f'and {self.gallery.size(1)}; compute both by the same model'
            )
        sizes = len(self.queries), len(self.gallery)
        for name, shape in (
            ('query_labels', sizes[:1]),
            ('gallery_labels', sizes[1:]),
            ('is_itself', sizes),
        ):
            found = tuple(getattr(self, name).shape)
            if (found if name == 'is_itself' else found[:1]) != shape or len(found) > 2:
                raise ValueError(
                    f'{name} must have shape {shape} for {sizes[0]} queries '
                    f'and a gallery of {sizes[1]}, got {found}'
                )
        of_queries = _levels('query_labels', self.query_labels)
        of_gallery = _levels('gallery_labels', self.gallery_labels)
        if len(of_queries) != len(of_gallery):
            raise UserError(
                f'query_labels have {len(of_queries)} levels and gallery_labels {len(of_gallery)}. '
                'Fix: the same levels for both, from coarse to fine'
            )
        self._levels = list(zip(of_queries, of_gallery))
        self.num_levels = len(of_queries)
        self.query_labels = of_queries[-1]
        self.gallery_labels = of_gallery[-1]
        self._same_class = self.query_labels[:, None] == self.gallery_labels
        # A label of -1 in the gallery is of no query: an empty place, or a text without a class.
        if len(self.query_labels) and violated(
            (self.query_labels >= 0).all(), 'a label is below 0'
        ):
            raise UserError(
                f'query_labels must be >= 0, got {self.query_labels.min().item()}, which would be '
                'a class like any other. Fix: keep = labels >= 0; pass embeddings[keep] and '
                'labels[keep]'
            )
        if self.num_levels > 1:
            self.shared_levels()

    @classmethod
    def of_one_batch(cls, embeddings: Tensor, labels: Tensor):
        """Every image searches all others: (B, D) float embeddings, (B,) integer classes."""
        itself = torch.eye(len(embeddings), dtype=torch.bool, device=embeddings.device)
        return cls(embeddings, labels, embeddings, labels, itself)

    def scores(self) -> Tensor:
        """(Q, G) inner products, at least in float32.

        ValueError, on a GPU a device-side assertion, if finite embeddings are so long that inf -
        inf may come up among the products.
        """
        dtype = torch.promote_types(self.queries.dtype, torch.float32)
        self._refuse_overflow(dtype)
        # Autocast would put the product into half precision, where close cosines tie.
        with torch.autocast(self.queries.device.type, enabled=False):
            return self.queries.to(dtype) @ self.gallery.to(dtype).t()

    def _refuse_overflow(self, dtype: torch.dtype) -> None:
        if not (self.queries.numel() and self.gallery.numel()):
            return
        longest = _largest_entry(self.queries)
        other = longest if self.gallery is self.queries else _largest_entry(self.gallery)
        product = longest * other * self.queries.size(1)
        # A step that overflows in half precision gives infinite embeddings. They make the loss NaN,
        # which a gradient scaler sees.
        is_infinite = ~(longest.isfinite() & other.isfinite())
        fits = is_infinite | (product < torch.finfo(dtype).max)
        if violated(fits, 'inner products of the embeddings overflow. Fix: embeddings of length 1'):
            raise UserError(
                f'inner products of embeddings with entries up to {longest.item():.3g} and '
                f'{other.item():.3g} overflow {dtype}. Fix: embeddings of length 1, as by '
                'mmrank.EmbeddingLoss(loss)(embeddings, classes)'
            )

    def is_positive(self) -> Tensor:
        """(Q, G) bool: of the query's class, but not its own image."""
        return self._same_class & ~self.is_itself

    def shared_levels(self) -> Tensor:
        """(Q, G) uint8 number of levels that query and entry share.

        ValueError, on a GPU a device-side assertion, if a level does not refine the one before.
        """
        shared = torch.zeros_like(self._same_class, dtype=torch.uint8)
        for number, (queries, gallery) in enumerate(self._levels):
            same = queries[:, None] == gallery
            if violated(
                (~same | (shared == number)).all(), 'a level does not refine the one before'
            ):
                raise UserError(
                    f'level {number} of the labels does not refine level {number - 1}: two images '
                    'share a class there, but not one level before. Fix: labels from coarse to '
                    'fine, and class numbers that are unique in their level; one-hot labels become '
                    'classes by labels.argmax(1)'
                )
            shared += same
        return shared

    def is_negative(self) -> Tensor:
        """(Q, G) bool: of another class."""
        return ~self._same_class & ~self.is_itself


def values_of_rows(values: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """(n,) values of the rows, from the (n_pos,) of those with a class; 0 for the others.

    Differentiable. On a GPU the number of values is not compared with the number of rows, which
    would make the host wait.
    """
    if target.dim() == 2 and num_classes == 1:
        has_class = target[:, 0] > 0  # 0 and 1 of one list
    elif target.dim() == 1:
        target = target if target.is_floating_point() else target.long()
        has_class = (target >= 0) & (target < num_classes)
    else:
        raise ValueError(
            'values of boxes need (n,) class indices, one box a row, got a '
            f'target of shape {tuple(target.shape)}'
        )
    owners = torch.from_numpy(np.flatnonzero(has_class.numpy())) if can_sync(target) else None
    if values.dim() != 1 or (owners is not None and len(values) != len(owners)):
        raise ValueError(
            'the values of the boxes must be (n_pos,), one for each row with a class, got shape '
            f'{tuple(values.shape)} for {int(has_class.sum())} such rows'
        )
    if owners is not None:
        return values.new_zeros(len(target)).index_copy(0, owners, values)
    # Not by masked_scatter, whose backward waits for the device, nor by cat, which bfloat16
    # autocast refuses for float16.
    slot = has_class.cumsum(0)
    return torch.where(has_class, pad(values, (1, 0))[slot], 0)


def box_values(
    loss, cls_score: Tensor, target: Tensor, quality: Tensor | None, box_loss: Tensor | None
) -> Tensor | None:
    """(n,) values of the rows, from the (n_pos,) values that a head passed.

    None if the head passed none and the loss does not require them. ValueError if they are not what
    ``box_input`` of the loss asks for.
    """
    given = {'quality': quality, 'box_loss': box_loss}
    argument = {'quality': 'quality', 'loss': 'box_loss'}
    values = given.pop(argument.get(loss.box_input, ''), None)
    for name, other in given.items():
        if other is not None:
            raise ValueError(
                f'{type(loss).__name__} does not take {name}, got shape {tuple(other.shape)}'
            )
    if values is None and not loss.requires_boxes:
        return None
    if values is None:
        raise ValueError(
            f'{type(loss).__name__} requires the boxes of the positives '
            f'({loss.box_input!r}), which this head does not pass; use '
            "type='mmrank.ListwiseHead' or 'mmrank.ListwiseBBoxHead'"
        )
    if loss.box_input == 'quality':
        # Rounding may exceed 1 a little; NaN, of a broken step, shows in the loss.
        outside = (values < -1e-3) | (values > 1.001)
        if violated(~outside.any(), 'quality is not in [0, 1]'):
            raise UserError(
                f'quality must be in [0, 1], got {values[outside][0].item()}. Fix: the IoU of each '
                "positive's box"
            )
    # One dtype on all ranks: one without boxes has its own zeros.
    values = values.to(torch.promote_types(cls_score.dtype, torch.float32))
    return values_of_rows(values, target, cls_score.size(1))


def gather_positives(
    pos: Tensor, values: Tensor | None, pos_mask: Tensor, group
) -> tuple[Tensor, Tensor | None, Tensor]:
    """(L, P) positives, values and mask of this rank, joined with the ones of all ranks."""
    parts = [pos]
    if values is not None:
        parts.append(scale_gradient(values, dist.get_world_size(group)))
    # Scores and values travel together: one wait for the width.
    joined, masks = all_gather_lists(join(parts), pos_mask.repeat(len(parts), 1), group)
    pos, *rest = joined.chunk(len(parts))
    return pos, rest[0] if rest else None, masks[: pos.size(0)]


def probabilities(scores: Tensor) -> Tensor:
    """Sigmoid of raw scores, at least in float32."""
    # In half precision all scores near 1 would tie.
    scores = at_least_float32(scores)
    # The slope at NaN is NaN, also where a list does not count.
    broken = scores.isnan()
    return torch.where(broken, scores, scores.masked_fill(broken, 0).sigmoid())
