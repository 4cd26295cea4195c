"""Gathers the calls that a head makes to its classification loss, and the boxes of its box loss."""

import torch
from torch import Tensor, nn

from mmrank.autograd import violated
from mmrank.losses.protocols import TakesBoxValues
from mmrank.models.federated_annotations import federated_weight
from mmrank.tensors import at_least_float32


class LevelCollector(nn.Module):
    """Replaces ``loss_cls`` of a head that calls it once per level.

    While open, each call is recorded and returns 0; :meth:`gather` then joins them. Where the head
    passes ``probabilities``, the loss gets their logits.
    """

    def __init__(self, loss: nn.Module, probabilities: bool = False) -> None:
        super().__init__()
        self.loss = loss
        self.probabilities = probabilities
        self.use_sigmoid = True
        self._calls: list[tuple] | None = None

    @property
    def targets(self) -> list[Tensor]:
        """Class indices of the calls gathered so far."""
        return [target for _, target, _, _ in self._calls or ()]

    def open(self) -> None:
        """Begin to gather, forgetting what an interrupted pass left."""
        self._calls = []

    def forward(
        self,
        pred: Tensor,
        target: Tensor | tuple[Tensor, Tensor],
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
    ) -> Tensor:
        """Record (n, C) raw scores and (n,) class indices of one level; returns a scalar 0.

        The target may be a pair of class indices and a quality, as heads of generalised focal loss
        pass; it has no place in a ranking. A call with ``reduction_override`` asks for the loss of
        each entry, which a ranking does not have.
        """
        if reduction_override is not None:
            raise RuntimeError(
                'this head calls its classification loss with reduction_override='
                f'{reduction_override!r}, which a ranking loss does not support; ListwiseHead does '
                'not support this head'
            )
        if isinstance(target, tuple):
            target = target[0]
        self._calls.append((pred, target, weight, avg_factor))
        return pred.new_zeros(())

    def gather(
        self, federated: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None, float | None]:
        """End the recording; (n, C) scores, (n,) targets, weights or None, the head's normaliser.

        ``federated`` has the (N, C) bool of
        :func:`~mmrank.models.federated_annotations.exhaustive_classes` and the (n,) image of each
        row; None where each image is annotated for all classes.
        """
        calls = self._calls
        self._calls = None
        if not calls:
            raise RuntimeError(
                'the head computed its losses without calling loss_cls, so there is nothing to rank'
            )
        preds, targets, weights, factors = zip(*calls)
        weight = None
        if any(w is not None for w in weights):
            ones = [t.new_ones(t.size(0), dtype=torch.float) for t in targets]
            weight = torch.cat([one if w is None else w for w, one in zip(weights, ones)])
        pred = torch.cat(preds)
        target = torch.cat(targets)
        if federated is not None:
            exhaustive, images = federated
            if len(images) != len(pred):
                raise RuntimeError(
                    f'the head passed {len(pred)} rows to loss_cls, but its levels have '
                    f'{len(images)}: federated=True does not support this head'
                )
            weight = federated_weight(self.loss, exhaustive, images, target, weight)
        return to_logits(pred) if self.probabilities else pred, target, weight, factors[0]


def to_logits(probabilities: Tensor) -> Tensor:
    """Raw scores, within about +-16 and at least float32, of probabilities in [0, 1]."""
    return at_least_float32(probabilities).logit(eps=1e-7)


def wants_boxes(loss: nn.Module, available: bool) -> bool:
    """Whether a loss takes values of boxes that are ``available``, or that it cannot do without."""
    takes_boxes = isinstance(loss, TakesBoxValues) and loss.box_input is not None
    return takes_boxes and (available or getattr(loss, 'requires_boxes', True))


def has_boxes(loss_bbox: nn.Module) -> bool:
    """Whether a box loss gets decoded boxes rather than their codes."""
    return 'IoU' in type(loss_bbox).__name__


def collect_boxes(head: nn.Module, attribute: str, on_codes: bool) -> None:
    """Put a :class:`BoxCollector` in place of a box loss of a head, for its ``loss_cls``.

    ``on_codes``: the box loss gets the codes of anchors, unless the head's ``reg_decoded_bbox`` is
    set. Raises ``ValueError`` if the loss needs decoded boxes and there are none, or computes the
    box loss itself and is balanced with it.
    """
    loss = head.loss_cls
    user = type(loss).__name__
    if loss.box_input == 'loss' and head.balance_boxes:
        raise ValueError(
            f'balance_boxes=True: {user} computes the box loss itself; remove balance_boxes'
        )
    coder = head.bbox_coder if on_codes and not head.reg_decoded_bbox else None
    if loss.box_input == 'loss' and coder is not None:
        raise ValueError(
            f'{user} requires decoded boxes, but {head.host.__name__} has reg_decoded_bbox=False; '
            'set reg_decoded_bbox=True and an IoU loss such as '
            "loss_bbox=dict(type='mmdet.GIoULoss')"
        )
    loss_bbox = getattr(head, attribute)
    if not has_boxes(loss_bbox) and (loss.box_input == 'loss' or not on_codes):
        raise ValueError(
            f'{user} requires decoded boxes, but loss_bbox.type={type(loss_bbox).__name__!r} is '
            "computed on box codes; use an IoU loss such as loss_bbox=dict(type='mmdet.GIoULoss')"
        )
    setattr(head, attribute, BoxCollector(loss_bbox, loss.box_input, coder))


class BoxCollector(nn.Module):
    """Replaces ``loss_bbox`` of a head and records its boxes.

    Between :meth:`open` and :meth:`close` each call is recorded. With ``kind='quality'``
    :meth:`close` returns IoUs and the head's own box loss stays, with ``'loss'`` it returns the box
    losses and the head gets 0. A head whose box loss is on codes passes its ``coder`` and gives the
    anchors by :meth:`note_anchors`.
    """

    def __init__(self, loss: nn.Module, kind: str, coder=None) -> None:
        super().__init__()
        self.loss = loss
        self.kind = kind
        self.coder = coder
        self._calls: list[tuple[Tensor, Tensor]] | None = None
        self._anchors: list[Tensor] = []

    def open(self) -> None:
        """Begin to gather, forgetting what an interrupted pass left."""
        self._calls = []
        self._anchors = []

    def note_anchors(self, anchors: Tensor) -> None:
        """Keep the (..., 4) anchors of rows that the classification loss gets next."""
        self._anchors.append(_tensor_of(anchors).flatten(0, -2))

    def forward(self, pred: Tensor, target: Tensor, *args, **kwargs) -> Tensor:
        """Record (n, 4) boxes or codes, (n, 5) where oriented, of all rows or of the positives.

        Returns the box loss of the head, or with ``kind='loss'`` a 0 on the graph of ``pred``.
        """
        if self._calls is not None:
            self._calls.append((pred, target))
            if self.kind == 'loss':
                # One row keeps the graph; a sum of all may overflow in half precision and give NaN.
                return pred[:1].sum() * 0
        return self.loss(pred, target, *args, **kwargs)

    def close(self, targets: list[Tensor], num_classes: int) -> dict[str, Tensor]:
        """Argument of the ranking loss, (n_pos,) values of the boxes of the positives.

        ``targets`` are (n,) class indices of each call of the classification loss; the positives,
        in [0, C), come in row order of the joined targets. ``quality``: detached IoUs in [0, 1].
        ``box_loss``: with gradient, weighted by ``loss_weight``. A head passes either all its rows,
        as many as there are scores, or the positives alone, and then no call where there are none.
        On a GPU a difference of counts is a device-side assertion, so that the host does not wait.
        """
        calls = self._calls
        anchors = self._anchors
        self._calls = None
        self._anchors = []
        joined = torch.cat(targets)
        positive = (joined >= 0) & (joined < num_classes)
        rows = sum(pred.size(0) for pred, _ in calls)
        whole = rows == joined.numel() and bool(calls)
        count = positive.sum()
        if not whole and violated(count == rows, 'loss_bbox got other boxes than positives'):
            raise RuntimeError(
                f'loss_bbox received {rows} boxes, but {int(count)} of the {joined.numel()} rows '
                'passed to loss_cls are positives: this head chooses the boxes differently, so it '
                'does not support losses with a box_input'
            )
        argument = 'box_loss' if self.kind == 'loss' else 'quality'
        if not calls:
            return {argument: joined.new_zeros(0, dtype=torch.float)}
        pred, target = (torch.cat(boxes) for boxes in zip(*calls))
        if whole or self.coder is not None:
            index = positive.nonzero().squeeze(1)
        if whole:
            pred = pred[index]
            target = target[index]
        pred = at_least_float32(pred)
        target = target.to(pred.dtype)
        if self.kind == 'loss':
            return {argument: self.loss(pred, target, reduction_override='none')}
        pred = pred.detach()
        if self.coder is not None:
            own = torch.cat(anchors)[index].to(pred.dtype)
            pred, target = (_tensor_of(self.coder.decode(own, codes)) for codes in (pred, target))
        if pred.size(1) == 5:  # centre, size and angle of mmrotate's boxes
            from mmcv.ops import box_iou_rotated

            ious = box_iou_rotated(pred, target, aligned=True)
        else:
            from mmdet.structures.bbox import bbox_overlaps

            ious = bbox_overlaps(pred, target, is_aligned=True)
        return {argument: ious.clamp(0, 1)}


def _tensor_of(boxes) -> Tensor:
    """Boxes, or those that a box type of mmdet holds."""
    return getattr(boxes, 'tensor', boxes)
