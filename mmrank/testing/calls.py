"""What a loss is called with: batches, and the ways to call that have a name.

The functions that make a batch are written into the scripts of failed checks as they stand here, so
they use torch alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.errors import UserError

Loss = Callable[..., object]


def total(value: object) -> Tensor:
    """One number of what a loss returns: the sum of a dict, the first of a tuple."""
    if isinstance(value, dict):
        return sum(value.values())
    return value[0] if isinstance(value, tuple) else value


def call_in_order(loss: Loss, *tensors: Tensor) -> object:
    """``loss(*tensors)``."""
    return loss(*tensors)


@dataclass(frozen=True)
class Batch:
    """Numbers of a batch; entry i of each tensor belongs to sample i."""

    #: Name of the way to call.
    kind: str
    #: Scores or embeddings, which need a gradient.
    leaves: tuple[Tensor, ...]
    #: Labels, indices and others.
    fixed: tuple[Tensor, ...]
    #: Calls a loss with the leaves and the fixed tensors.
    apply: Callable[..., object] = call_in_order

    def of(self, loss: Loss) -> Tensor:
        """What the loss says of this batch, one number."""
        return total(self.apply(loss, *self.leaves, *self.fixed))

    def gradients(self, loss: Loss) -> tuple[Tensor, list[Tensor]]:
        """Detached value, and gradients of the leaves."""
        leaves = [x.detach().clone().requires_grad_() for x in self.leaves]
        value = self.with_leaves(leaves).of(loss)
        return value.detach(), [*torch.autograd.grad(value, leaves)]

    def with_leaves(self, leaves: Sequence[Tensor]) -> 'Batch':
        """The batch with other scores or embeddings."""
        return Batch(self.kind, tuple(leaves), self.fixed, self.apply)

    def with_fixed(self, fixed: Sequence[Tensor]) -> 'Batch':
        """The batch with other labels and indices."""
        return Batch(self.kind, self.leaves, tuple(fixed), self.apply)

    def entries(self, index: object) -> 'Batch':
        """Some of the samples, or all in another order."""
        part = self.with_leaves([x[index] for x in self.leaves])
        return part.with_fixed([x[index] for x in self.fixed])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> 'Batch':
        """The batch with ``change`` applied to each leaf."""
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

    #: How reports name it.
    name: str
    #: ``make(size, seed)``: the float64 tensors that need a gradient, and the others. Entry i of
    #: each belongs to sample i.
    make: Callable[[int, int], tuple[list[Tensor], list[Tensor]]]
    #: ``apply(loss, *tensors)`` calls the loss.
    apply: Callable[..., object] = call_in_order
    #: ``no_positives(x, y)`` and ``all_positives(x, y)``: the tensors ``y`` of a batch where no
    #: sample, or each, is a positive; None: there is no such batch.
    no_positives: Callable[..., list[Tensor]] | None = None
    all_positives: Callable[..., list[Tensor]] | None = None
    #: ``perfect(x, y)``: tensors ``x`` that rank, or fit, as well as they can.
    perfect: Callable[..., list[Tensor]] | None = None

    def batch(self, size: int = 12, seed: int = 0) -> Batch:
        """A batch of random numbers."""
        leaves, fixed = self.make(size, seed)
        return Batch(self.name, tuple(leaves), tuple(fixed), self.apply)


def make_scores(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, 3, generator=g, dtype=torch.float64)
    return [scores], [torch.randint(3, (size,), generator=g)]


def make_binary(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, generator=g, dtype=torch.float64)
    return [scores], [(torch.rand(size, generator=g) < 0.4).long()]


def make_multi_label(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, 3, generator=g, dtype=torch.float64)
    return [scores], [(torch.rand(size, 3, generator=g) < 0.4).long()]


def make_embeddings(size, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=g, dtype=torch.float64)
    return [x], [torch.randint(3, (size,), generator=g)]


def make_views(size, seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 8, generator=g, dtype=torch.float64) for _ in range(2)], []


def make_indexed_views(size, seed):
    g = torch.Generator().manual_seed(seed)
    x = [torch.randn(size, 8, generator=g, dtype=torch.float64) for _ in range(2)]
    return x, [torch.randperm(40, generator=g)[:size]]


def make_triplets(size, seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 8, generator=g, dtype=torch.float64) for _ in range(3)], []


def make_lists(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, 7, generator=g, dtype=torch.float64)
    return [scores], [torch.randint(3, (size, 7), generator=g)]


def make_boxes(size, seed):
    g = torch.Generator().manual_seed(seed)
    corners, sides = torch.rand(2, 2, size, 2, generator=g, dtype=torch.float64)
    x, y = torch.cat([corners, corners + 0.5 + sides], 2)
    return [x], [y]


def make_numbers(size, seed):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, size, 3, generator=g, dtype=torch.float64)
    return [x], [y]


def make_masks(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, 3, 4, 4, generator=g, dtype=torch.float64)
    return [scores], [torch.randint(3, (size, 4, 4), generator=g)]


def call_with_unit_rows(loss, *tensors):
    """As image and text towers do, with the factor 10 of the cosines."""
    x, *others = [torch.nn.functional.normalize(x) for x in tensors]
    return loss(x, *others, torch.tensor(10.0, dtype=x.dtype))


def one_class(x, y):
    return [torch.zeros_like(y[0])]


def each_its_own_class(x, y):
    return [torch.arange(len(y[0]))]


def all_zero(x, y):
    return [torch.zeros_like(y[0])]


def all_one(x, y):
    return [torch.ones_like(y[0])]


def score_the_class(x, y):
    return [8.0 * torch.nn.functional.one_hot(y[0], 3).double() - 4]


def score_the_positives(x, y):
    return [8.0 * y[0].double() - 4]


def class_directions(x, y):
    return [8.0 * torch.nn.functional.one_hot(y[0], 8).double()]


def second_as_first(x, y):
    return [8.0 * torch.eye(len(x[0]), dtype=torch.float64)] * 2


def score_the_mask(x, y):
    return [8.0 * torch.nn.functional.one_hot(y[0], 3).movedim(-1, 1).double() - 4]


def as_the_target(x, y):
    return [y[0].double()]


#: Ways to call that have a name: what the command and ``call=`` take.
CALLS = {
    call.name: call
    for call in [
        Call('scores', make_scores, all_positives=one_class, perfect=score_the_class),
        Call(
            'binary',
            make_binary,
            no_positives=all_zero,
            all_positives=all_one,
            perfect=score_the_positives,
        ),
        Call(
            'multi_label',
            make_multi_label,
            no_positives=all_zero,
            all_positives=all_one,
            perfect=score_the_positives,
        ),
        Call(
            'embeddings',
            make_embeddings,
            no_positives=each_its_own_class,
            all_positives=one_class,
            perfect=class_directions,
        ),
        Call('views', make_views, perfect=second_as_first),
        Call('indexed_views', make_indexed_views, perfect=second_as_first),
        Call('images_texts', make_views, call_with_unit_rows, perfect=second_as_first),
        Call('triplets', make_triplets),
        Call(
            'lists',
            make_lists,
            no_positives=all_zero,
            all_positives=all_one,
            perfect=score_the_positives,
        ),
        Call('boxes', make_boxes, perfect=as_the_target),
        Call('numbers', make_numbers, perfect=as_the_target),
        Call('masks', make_masks, all_positives=one_class, perfect=score_the_mask),
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
