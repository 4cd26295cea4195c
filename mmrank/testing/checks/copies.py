"""Checks of what is saved, copied and evaluated."""

import copy
import io
import pickle

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from mmrank.testing.calls import Loss
from mmrank.testing.check import check, is_a_function, require, require_same
from mmrank.testing.subject import Subject


def _require_same_step(subject: Subject, found: Loss, expected: Loss, what: str) -> None:
    """Fail unless two losses take the same third step, and have the same state after it."""
    batch = subject.batch(seed=2)
    torch.manual_seed(1)
    one = batch.gradients(expected)
    torch.manual_seed(1)
    other = batch.gradients(found)
    require_same(other[0], one[0], f'the third value {what}', rtol=0, atol=0)
    require_same(other[1], one[1], f'a third gradient {what}', rtol=0, atol=0)
    states = [
        [x for x in loss.state_dict().values() if isinstance(x, Tensor)]
        for loss in (found, expected)
    ]
    require_same(*states, f'the state {what}', rtol=0, atol=0)


@check(excuse=is_a_function)
def _deepcopy(subject: Subject) -> None:
    """A copy takes the same step as the loss, and neither sees the step of the other.

    An average of weights, or a search over settings, copies the model with its losses.
    """
    loss = subject.trained()
    _require_same_step(subject, copy.deepcopy(loss), loss, 'of a copy')


@check(refusals=(Exception,), excuse=is_a_function)
def _pickle(subject: Subject) -> None:
    """A pickled loss takes the same step.

    Processes that are spawned get their model so.
    """
    loss = subject.trained()
    data = pickle.dumps(loss)
    loaded = pickle.loads(data)  # nosec B301: of the line before
    _require_same_step(subject, loaded, loss, 'of a pickled loss')


@check(excuse=is_a_function)
def _state_dict(subject: Subject) -> None:
    """A checkpoint holds what the third step needs.

    A running mean, a queue or a step counter in a plain attribute is lost where a training goes on:
    the loss starts again from nothing, without a word.
    """
    loss = subject.trained()
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    loaded = subject.build()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    _require_same_step(subject, loaded, loss, 'after loading a checkpoint')


@check(excuse=is_a_function)
def _evaluation(subject: Subject) -> None:
    """A value that is asked for in evaluation does not move the state.

    Who logs the loss of the validation set would train on it.
    """
    loss = subject.trained()
    other = subject.trained()
    other.eval()
    with torch.no_grad():
        subject.batch(seed=5).of(other)
    other.train()
    _require_same_step(subject, other, loss, 'after an evaluation')


@check(is_usual=False, excuse=is_a_function)
def _value_alone(subject: Subject) -> None:
    """A value that is asked for under ``torch.no_grad()`` does not move the state.

    ``model.eval()`` does not reach a loss outside of the model.
    """
    loss = subject.trained()
    other = subject.trained()
    with torch.no_grad():
        subject.batch(seed=5).of(other)
    _require_same_step(subject, other, loss, 'after a value without gradients')


@check(is_usual=False, refusals=(Exception,), excuse=is_a_function)
def _built_on_meta(subject: Subject) -> None:
    """A loss that is built on the meta device takes the same step once a checkpoint is loaded.

    Large models are built without values first, with their losses.
    """
    loss = subject.trained()
    with torch.device('meta'):
        other = subject.build()
    other = other.to_empty(device='cpu')
    other.load_state_dict(loss.state_dict())
    for x in other.parameters():
        x.data = x.data.to(subject.dtype)
    _require_same_step(subject, other, loss, 'of a loss that was built on the meta device')


@check()
def _checkpointing(subject: Subject) -> None:
    """Under ``torch.utils.checkpoint``, which runs the forward again, the step is the same.

    A state that moves in the forward moves twice, and the gradient is of another value than the one
    that was shown.
    """
    plain = subject.build()
    other = subject.build()
    for seed in range(3):
        batch = subject.batch(seed=seed)
        value, gradients = batch.gradients(plain)
        leaves = [x.clone().requires_grad_() for x in batch.leaves]

        def step(*leaves: Tensor, batch=batch) -> Tensor:
            return batch.with_leaves(leaves).of(other)

        found = torch.utils.checkpoint.checkpoint(step, *leaves, use_reentrant=False)
        slopes = [*torch.autograd.grad(found, leaves)]
        # The recomputed forward does the same work: not one bit differs.
        require_same(found, value, 'the value in a checkpointed block', rtol=0, atol=0)
        require_same(slopes, gradients, 'a gradient in a checkpointed block', rtol=0, atol=0)
    if isinstance(plain, nn.Module):
        pairs = zip(plain.state_dict().values(), other.state_dict().values(), strict=True)
        same = all(torch.equal(x, y) for x, y in pairs if isinstance(x, Tensor))
        require(same, 'the state has moved twice')
