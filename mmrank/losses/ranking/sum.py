"""Several losses as one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from torch import Tensor, nn

from mmrank.errors import UserTypeError
from mmrank.losses.base import HeadLoss
from mmrank.losses.embeddings import EmbeddingBatch
from mmrank.losses.protocols import TrainsEmbeddings
from mmrank.settings import check_not_negative
from mmrank.state.class_counts import Counts

_EXAMPLE = "[dict(type='mmrank.StableAPLoss'), dict(type='mmrank.AUCLoss')]"


class SumLoss(HeadLoss):
    """Weighted sum of losses, used in place of one.

    ``loss_weight * sum_k weights[k] * losses[k]``, each part with its own ``mode``, ``activation``
    and state, which is saved under ``losses.0``, ...::

        loss=dict(
            type='mmrank.SumLoss',
            losses=[
                dict(type='mmrank.StableAPLoss'),
                dict(type='mmrank.AUCLoss', tau=1.0)],
            weights=[1.0, 0.2])

    For embeddings any loss of :class:`EmbeddingLoss` is a part, with its proxies where it has any.

    At test time the scores are centred by the :meth:`logit_centre` of the first part that has one.
    ``diagnostics`` are the weighted values of the parts, ``part_0``, ..., which add up to the loss.

    Args:
        losses: The parts, at least one: configs or modules of losses that return a scalar.
            ``num_classes`` is filled in for configs of parts that leave it out.
        weights: One finite number >= 0 for each part. None: 1 for each.
        num_classes: Number of classes C, checked against the scores. None: the parts' C.
        loss_weight: Factor of the whole loss, >= 0.
    """

    def __init__(
        self,
        losses: Sequence[Mapping | HeadLoss | TrainsEmbeddings],
        weights: Sequence[float] | None = None,
        num_classes: int | None = None,
        loss_weight: float = 1.0,
        use_sigmoid: bool = True,
    ) -> None:
        if not len(losses):
            raise ValueError(f'losses=[] is empty; give at least one loss, such as {_EXAMPLE}')
        parts = [_build_part(f'losses[{i}]', part, num_classes) for i, part in enumerate(losses)]
        if len(set(map(id, parts))) < len(parts):
            what = 'losses holds one module twice, so its state would be updated twice a step'
            raise ValueError(f'{what}; make a module for each part, or raise its weight')
        super().__init__(
            num_classes=_common('num_classes', parts, num_classes, 'num_columns'),
            scope=_common('scope', parts),
            loss_weight=loss_weight,
            use_sigmoid=use_sigmoid,
        )
        weights = [1.0] * len(parts) if weights is None else weights
        if not isinstance(weights, Sequence) or len(weights) != len(parts):
            what = f'weights must be a list of {len(parts)} numbers, one for each part'
            raise ValueError(f'{what}, got {weights!r}')
        self.weights = [float(weight) for weight in weights]
        check_not_negative(**{f'weights[{i}]': weight for i, weight in enumerate(self.weights)})
        self.losses = nn.ModuleList(parts)
        self.box_input = _common('box_input', parts)
        self.requires_boxes = any(x.box_input and x.requires_boxes for x in self._head_parts())
        self.keeps_samples = any(getattr(part, 'keeps_samples', False) for part in parts)
        self.num_samples = _common('num_samples', parts)

    def _head_parts(self) -> Iterator[HeadLoss]:
        return (part for part in self.losses if isinstance(part, HeadLoss))

    def forward(self, cls_score, target, *args, quality=None, sample_idx=None, **kwargs) -> Tensor:
        """See :meth:`HeadLoss.forward`.

        ``quality`` goes to parts with ``box_input='quality'``, ``sample_idx``, (n,) indices of the
        rows in the training set, to those with ``keeps_samples``.
        """
        if quality is not None and self.box_input is None:
            raise ValueError(
                f'no part of SumLoss takes quality, got shape {tuple(quality.shape)}; leave it out'
            )
        for i, part in enumerate(self.losses):
            if not isinstance(part, HeadLoss):
                what = f'losses[{i}] ({type(part).__name__}) takes embeddings, not scores'
                fix = 'EmbeddingLoss(SumLoss(...)) or mmrank.RetrievalHead, called with embeddings'
                raise UserTypeError(what, fix)
        values = []
        for part in self._head_parts():
            extra = {} if part.box_input is None else {'quality': quality}
            if getattr(part, 'keeps_samples', False):
                extra['sample_idx'] = sample_idx
            values.append(part(cls_score, target, *args, **kwargs, **extra))
        return self._sum(values)

    def expect_cosines(self) -> None:
        for part in self._head_parts():
            part.expect_cosines()

    def embedding_loss(self, batch: EmbeddingBatch) -> Tensor:
        parts = cast(Sequence[TrainsEmbeddings], self.losses)
        return self._sum([part.embedding_loss(batch) for part in parts])

    def _sum(self, values: list[Tensor]) -> Tensor:
        for i, (part, value) in enumerate(zip(self.losses, values)):
            if not isinstance(value, Tensor) or value.dim():
                raise TypeError(
                    f'losses[{i}] ({type(part).__name__}) must return a scalar tensor, got {value}'
                )
        terms = [self.loss_weight * (w * value) for w, value in zip(self.weights, values)]
        self.diagnostics = {f'part_{i}': term.detach() for i, term in enumerate(terms)}
        return cast(Tensor, sum(terms))

    def logit_centre(self) -> Tensor | None:
        centres = (part.logit_centre() for part in self._head_parts())
        return next((x for x in centres if x is not None), None)

    def get_cls_channels(self, num_classes: int) -> int:
        for part in self._head_parts():
            part.get_cls_channels(num_classes)
        return super().get_cls_channels(num_classes)

    def _count_parts(self) -> list[HeadLoss]:
        parts = [*self._head_parts()]
        return [x for x in parts if getattr(x, 'wants_class_counts', False) or x.has_auto_weights]

    @property
    def wants_class_counts(self) -> bool:
        return bool(self._count_parts())

    def set_class_counts(self, counts: Counts, num_samples: int | None = None) -> None:
        for part in self._count_parts():
            part.set_class_counts(counts, num_samples)


def _build_part(
    name: str, part: Mapping | nn.Module | TrainsEmbeddings, num_classes: int | None
) -> nn.Module:
    if isinstance(part, Mapping):
        # Needs mmengine, which a loss made of modules does not.
        from mmrank.losses.registered import build_loss

        part = build_loss(name, part, num_classes)
    if not isinstance(part, nn.Module) or not isinstance(part, (HeadLoss, TrainsEmbeddings)):
        raise UserTypeError(
            f'{name}={type(part).__name__} ranks neither scores nor embeddings. Fix: a ranking '
            'loss such as mmrank.StableAPLoss, or mmrank.PMLLoss for embeddings; an EmbeddingLoss '
            'goes around the sum'
        )
    if getattr(part, 'box_input', None) not in (None, 'quality'):
        raise ValueError(
            f'{name}={type(part).__name__} has box_input={part.box_input!r}: it returns a '
            'classification and a box loss, which SumLoss cannot add up; use it alone, or '
            'mmrank.APLoss or mmrank.RankSortLoss in its place'
        )
    return part


def _common(
    field: str, parts: Sequence[object], own: Any = None, attribute: str | None = None
) -> Any:
    """The value that a field of the parts, kept as ``attribute``, has in common, or None."""
    found = {} if own is None else {field: own}
    for i, part in enumerate(parts):
        value = getattr(part, attribute or field, None)
        if value is not None:
            found[f'{field} of losses[{i}] ({type(part).__name__})'] = value
    if len(set(found.values())) > 1:
        listed = ', '.join(f'{name} is {x!r}' for name, x in found.items())
        raise ValueError(f'SumLoss needs one {field} for all parts, but {listed}; make them equal')
    return next(iter(found.values()), None)
