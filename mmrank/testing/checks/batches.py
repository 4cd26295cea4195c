"""Checks of the batches that training meets: their order, their layout, what is missing in them."""

import torch
from torch import Tensor

from mmrank.testing.calls import Batch
from mmrank.testing.check import check, require, require_finite, require_same
from mmrank.testing.subject import Subject


def _require_finite_on(batch: Batch, subject: Subject) -> None:
    """Fail unless a fresh loss has a finite value and gradients."""
    require_finite(*batch.gradients(subject.build()))


@check()
def _permutation(subject: Subject) -> None:
    """The order of a batch does not matter.

    A sampler shuffles it. What the order changes is noise at best, and at worst a row that is
    compared with the label of another. Three steps, because a state may keep the order;
    what it holds may be in another, as a queue's entries are.
    """
    order = torch.randperm(12)
    loss = subject.build()
    other = subject.build()
    for seed in range(3):
        batch = subject.batch(seed=seed)
        value, gradients = batch.gradients(loss)
        moved = batch.entries(order).gradients(other)
        require_same(moved[0], value, 'the value in another order')
        require_same(moved[1], [x[order] for x in gradients], 'a gradient in another order')


def _interleaved(x: Tensor) -> Tensor:
    x = torch.stack([x, x], -1)
    return x[:, 0] if x.dim() == 2 else x.transpose(0, 1).contiguous().transpose(0, 1)[..., 0]


@check()
def _strided(subject: Subject) -> None:
    """Inputs that are not contiguous are the numbers that they are.

    A transpose or a slice gives such a tensor; ``view`` refuses it, and a kernel that takes its
    memory for contiguous reads other numbers.
    """
    batch = subject.batch()
    value, gradients = batch.gradients(subject.build())
    strided = batch.mapped(_interleaved)
    strided = strided.with_fixed([torch.stack([x, x], -1)[..., 0] for x in batch.fixed])
    found = strided.gradients(subject.build())
    require_same(found[0], value, 'the value of strided inputs')
    require_same(found[1], gradients, 'a gradient of strided inputs')


@check()
def _expanded(subject: Subject) -> None:
    """An expanded tensor, whose rows share memory, is the numbers that it is.

    What a loss writes into it in place, it writes into all rows.
    """
    batch = subject.batch()
    shared = batch.with_leaves([x[:1].expand_as(x) for x in batch.leaves])
    value, gradients = shared.mapped(torch.clone).gradients(subject.build())
    leaves = [x.detach().requires_grad_() for x in shared.leaves]
    found = shared.with_leaves(leaves).of(subject.build())
    require_same(found, value, 'the value of expanded inputs')
    slopes = torch.autograd.grad(found, leaves)
    require_same(list(slopes), gradients, 'a gradient of expanded inputs')


@check()
def _ties(subject: Subject) -> None:
    """Where all rows of scores are the same, or all embeddings, the gradient is finite.

    A network that starts from zero, a collapsed one or a ReLU makes ties; a distance or a norm has
    no derivative there, and its NaN ends the training.
    """
    batch = subject.batch()
    first = batch.leaves[0]
    rows = [first if x.shape == first.shape else x for x in batch.leaves]
    _require_finite_on(batch.with_leaves([x[:1].expand_as(x).clone() for x in rows]), subject)


@check(is_usual=False)
def _zero_row(subject: Subject) -> None:
    """A sample whose embedding or scores are all zero has a finite value and a bounded gradient.

    A dead ReLU gives one. Divided by its length plus 1e-12 it has a gradient of 1e10, after which
    all cosines are 1.
    """
    batch = subject.batch()
    zeros = batch.mapped(lambda x: torch.cat([torch.zeros_like(x[:1]), x[1:]]))
    value, slopes = zeros.gradients(subject.build())
    require_finite(value, slopes)
    largest = max(float(x.abs().max()) for x in slopes)
    require(largest < 1e6, f'a gradient of {largest:.1e}')


@check()
def _one_element(subject: Subject) -> None:
    """One sample has a finite loss, or a refusal that says so.

    The last batch of an epoch may hold one. There is nothing to compare then.
    """
    _require_finite_on(subject.batch(1), subject)


@check(is_usual=False)
def _no_element(subject: Subject) -> None:
    """A batch of no samples has a finite loss, or a refusal that says so.

    A rank without boxes has one. The mean of nothing is NaN, which reaches all other ranks.
    """
    _require_finite_on(subject.batch().entries(slice(0, 0)), subject)


def _has_no_such_batch(name: str):
    def excuse(subject: Subject) -> str:
        return '' if getattr(subject.call, name) else f'{subject.call.name} has no such batch'

    return excuse


@check(excuse=_has_no_such_batch('no_positives'))
def _no_positives(subject: Subject) -> None:
    """A batch without a positive has a finite loss, or a refusal that says so.

    Rare classes make such batches. An average over the positives is then 0 / 0.
    """
    batch = subject.batch()
    fixed = subject.call.no_positives(batch.leaves, batch.fixed)
    _require_finite_on(batch.with_fixed(fixed), subject)


@check(excuse=_has_no_such_batch('all_positives'))
def _all_positives(subject: Subject) -> None:
    """A batch without a negative has a finite loss, or a refusal that says so.

    A sampler of classes makes such batches, and a list of few candidates is one.
    """
    batch = subject.batch()
    fixed = subject.call.all_positives(batch.leaves, batch.fixed)
    _require_finite_on(batch.with_fixed(fixed), subject)


@check(refusals=(Exception,))
def _nan_is_shown(subject: Subject) -> None:
    """A NaN in the scores is NaN in the loss, or a refusal.

    A loss that stays finite hides that the network has broken, and the scaler of mixed precision,
    which skips such a step, does not see it.
    """

    def broken(x: Tensor) -> Tensor:
        x = x.clone()
        x[::2] = float('nan')
        return x

    value = subject.batch().mapped(broken).of(subject.build())
    require(value.isnan(), f'the value is {value.item():.6g} where half of the rows are NaN')


@check(is_usual=False)
def _infinities(subject: Subject) -> None:
    """Infinite scores, which float16 makes of 70,000, leave the loss and its gradients finite.

    A rank or a bounded loss can promise it; a cross-entropy is infinite itself.
    """

    def infinite(x: Tensor) -> Tensor:
        x = x.clone()
        rows = x.view(len(x), -1)
        rows[0, 0] = torch.inf
        rows[1, -1] = -torch.inf
        rows[2] = torch.inf
        return x

    batch = subject.batch()
    first, *others = batch.leaves
    _require_finite_on(batch.with_leaves([infinite(first), *others]), subject)


@check()
def _large_numbers(subject: Subject) -> None:
    """Scores in the thousands have a finite loss and finite gradients.

    ``log(sigmoid(x))`` and ``exp(x)`` written out are infinite there, and their gradients NaN.
    """
    _require_finite_on(subject.batch().mapped(lambda x: 1000 * x), subject)


@check(excuse=_has_no_such_batch('perfect'))
def _perfect_is_better(subject: Subject) -> None:
    """Scores that rank perfectly have a lower loss than random ones.

    A sign, or a distance taken for a similarity, would fail here.
    """
    batch = subject.batch()
    best = batch.with_leaves(subject.call.perfect(batch.leaves, batch.fixed)).cast(subject.dtype)
    found = best.of(subject.build())
    random = batch.of(subject.build())
    require(found < random, f'{float(found):.6g} for perfect scores, {float(random):.6g} else')
