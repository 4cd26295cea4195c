"""What a loss is called with: batches, and the ways to call that have a name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mmrank.errors import UserError

Loss = Callable[..., object]


def total(value: object) -> Tensor:
    """One number of what a loss returns: the sum of a dict, the first of a tuple."""
    if isinstance(value, dict):
        return sum(value.values())
    return value[0] if isinstance(value, tuple) else value


def _call_in_order(loss: Loss, *tensors: Tensor) -> object:
    return loss(*tensors)


@dataclass(frozen=True)
class Batch:
    """Numbers of a batch; entry i of each tensor belongs to sample i."""

    kind: str  # Name of the way to call
    leaves: tuple[Tensor, ...]  # Scores or embeddings, which need a gradient
    fixed: tuple[Tensor, ...]  # Labels, indices and others
    #: Calls a loss with the leaves and the fixed tensors.
    apply: Callable[..., object] = _call_in_order

    def of(self, loss: Loss) -> Tensor:
        """What the loss says of this batch, one number."""
        return total(self.apply(loss, *self.leaves, *self.fixed))

    def gradients(self, loss: Loss) -> tuple[Tensor, list[Tensor]]:
        """Detached value, and gradients of the leaves."""
        leaves = [x.detach().clone().requires_grad_() for x in self.leaves]
        value = self.with_leaves(leaves).of(loss)
        return value.detach(), [*torch.autograd.grad(value, leaves)]

    def with_leaves(self, leaves: Sequence[Tensor]) -> 'Batch':
        return Batch(self.kind, tuple(leaves), self.fixed, self.apply)

    def with_fixed(self, fixed: Sequence[Tensor]) -> 'Batch':
        return Batch(self.kind, self.leaves, tuple(fixed), self.apply)

    def entries(self, index: object) -> 'Batch':
        """Some of the samples, or all in another order."""
        part = self.with_leaves([x[index] for x in self.leaves])
        return part.with_fixed([x[index] for x in self.fixed])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> 'Batch':
        return self.with_leaves([change(x) for x in self.leaves])

    def cast(self, dtype: torch.dtype) -> 'Batch':
        """The batch with all floats in another dtype, floats of the targets included."""
        batch = self.mapped(lambda x: x.to(dtype))
        fixed = [x.to(dtype) if x.is_floating_point() else x for x in self.fixed]
        return batch.with_fixed(fixed)


@dataclass(frozen=True)
class Call:
    """A way to call a loss.

    Its functions are picklable, and so is the loss, where the checks over several processes run.
    """

    name: str  # How reports name it
    #: ``make(size, seed)``: the float64 tensors that need a gradient, and the others. Entry i of
    #: each belongs to sample i.
    make: Callable[[int, int], tuple[list[Tensor], list[Tensor]]]
    apply: Callable[..., object] = _call_in_order  # ``apply(loss, *tensors)`` calls the loss
    #: ``no_positives(x, y)`` and ``all_positives(x, y)``: the tensors ``y`` of a batch where no
    #: sample, or each, is a positive; None: there is no such batch.
    no_positives: Callable[..., list[Tensor]] | None = None
    all_positives: Callable[..., list[Tensor]] | None = None
    #: ``perfect(x, y)``: tensors ``x`` that rank, or fit, as well as they can.
    perfect: Callable[..., list[Tensor]] | None = None

    def batch(self, size: int = 12, seed: int = 0) -> Batch:
        leaves, fixed = self.make(size, seed)
        return Batch(self.name, tuple(leaves), tuple(fixed), self.apply)


def _numbers(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def _classes(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(3, shape, generator=g)


def _bits(g: torch.Generator, *shape: int) -> Tensor:
    return (torch.rand(*shape, generator=g) < 0.4).long()


def _places(g: torch.Generator, size: int) -> Tensor:
    return torch.randperm(40, generator=g)[:size]


def _make(
    number: int, shape: tuple, labels: Callable, of_entries: tuple, size: int, seed: int
) -> tuple[list[Tensor], list[Tensor]]:
    """``number`` tensors of entries of a shape, and the labels of the shape ``of_entries``."""
    g = torch.Generator().manual_seed(seed)
    leaves = [_numbers(g, size, *shape) for _ in range(number)]
    return leaves, [labels(g, size, *of_entries)]


def _make_views(number: int, size: int, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    return _make(number, (8,), _places, (), size, seed)[0], []


def _make_boxes(size: int, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    g = torch.Generator().manual_seed(seed)
    corners, sides = torch.rand(2, 2, size, 2, generator=g, dtype=torch.float64)
    x, y = torch.cat([corners, corners + 0.5 + sides], 2)
    return [x], [y]


def _call_with_unit_rows(loss: Loss, *tensors: Tensor) -> object:
    """As image and text towers do, with the factor 10 of the cosines."""
    x, *others = [torch.nn.functional.normalize(x) for x in tensors]
    return loss(x, *others, torch.tensor(10.0, dtype=x.dtype))


def _all_zero(x, y):
    return [torch.zeros_like(y[0])]


def _all_one(x, y):
    return [torch.ones_like(y[0])]


def _each_its_own_class(x, y):
    return [torch.arange(len(y[0]))]


def _scores_of_labels(x, y):
    labels = y[0]
    if labels.shape != x[0].shape:
        labels = torch.nn.functional.one_hot(labels, x[0].size(1)).movedim(-1, 1)
    return [8.0 * labels.double() - 4]


def _class_directions(x, y):
    return [8.0 * torch.nn.functional.one_hot(y[0], 8).double()]


def _second_as_first(x, y):
    return [8.0 * torch.eye(len(x[0]), dtype=torch.float64)] * 2


def _as_the_target(x, y):
    return [y[0].double()]


_EITHER = dict(no_positives=_all_zero, all_positives=_all_one, perfect=_scores_of_labels)
_ONE_CLASS = dict(all_positives=_all_zero, perfect=_scores_of_labels)
_indexed = partial(_make, 2, (8,), _places, ())
#: Ways to call that have a name, which ``call=`` takes.
CALLS = {
    call.name: call
    for call in [
        Call('scores', partial(_make, 1, (3,), _classes, ()), **_ONE_CLASS),
        Call('binary', partial(_make, 1, (), _bits, ()), **_EITHER),
        Call('multi_label', partial(_make, 1, (3,), _bits, (3,)), **_EITHER),
        Call(
            'embeddings',
            partial(_make, 1, (8,), _classes, ()),
            no_positives=_each_its_own_class,
            all_positives=_all_zero,
            perfect=_class_directions,
        ),
        Call('views', partial(_make_views, 2), perfect=_second_as_first),
        Call('indexed_views', _indexed, perfect=_second_as_first),
        Call(
            'images_texts', partial(_make_views, 2), _call_with_unit_rows, perfect=_second_as_first
        ),
        Call('triplets', partial(_make_views, 3)),
        Call('lists', partial(_make, 1, (7,), _classes, (7,)), **_EITHER),
        Call('boxes', _make_boxes, perfect=_as_the_target),
        Call('numbers', partial(_make, 1, (3,), _numbers, (3,)), perfect=_as_the_target),
        Call('masks', partial(_make, 1, (3, 4, 4), _classes, (4, 4)), **_ONE_CLASS),
    ]
}


def call_of(given: 'str | Call') -> Call:
    """A way to call by its name, else UserError, or itself."""
    if isinstance(given, Call):
        return given
    if given not in CALLS:
        raise UserError(
            f'call={given!r} is unknown. Fix: one of {", ".join(CALLS)}, or a mmrank.testing.Call'
        )
    return CALLS[given]
