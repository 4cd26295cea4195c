"""Checks of the loss on several processes, which equals the loss on one."""

import pickle
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.testing.calls import Batch
from mmrank.testing.check import CheckFailedError, check, require_same
from mmrank.testing.processes import run_on_ranks
from mmrank.testing.subject import Subject

#: Entries of each rank, step by step.
Steps = list[tuple[int, ...]]
EVEN: Steps = [(6, 6), (4, 4)]
UNEVEN: Steps = [(7, 5), (5, 2)]
THREE: Steps = [(4, 4, 4), (4, 4, 4)]


class Layers(nn.Module):
    """A layer for each input of the loss, and the loss."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.loss = subject.build()
        torch.manual_seed(0)
        leaves = subject.batch().leaves
        self.layers = nn.ModuleList(nn.Linear(6, x[0].numel()).double() for x in leaves)

    def forward(self, batch: Batch, shapes: list[torch.Size]) -> Tensor:
        """The loss of what the layers make of the features in the batch."""
        outputs = [f(x).view(len(x), *s) for f, x, s in zip(self.layers, batch.leaves, shapes)]
        return batch.with_leaves(outputs).of(self.loss)


@dataclass(frozen=True)
class _RankCheck:
    """A subject, the sizes of its shares, and whether the last rank has one class alone."""

    subject: Subject
    steps: Steps
    one_class_on_last: bool = False

    def batch(self, step: int) -> tuple[Batch, list[torch.Size]]:
        """Features and labels of all ranks, and the shapes of what the layers make of them."""
        size = sum(self.steps[step])
        batch = self.subject.batch(size, step)
        g = torch.Generator().manual_seed(step)
        features = [torch.randn(size, 6, generator=g, dtype=torch.float64) for _ in batch.leaves]
        fixed = [x.clone() for x in batch.fixed]
        if self.one_class_on_last and fixed:
            fixed[0][size - self.steps[step][-1] :] = 0
        shapes = [x.shape[1:] for x in batch.leaves]
        return batch.with_leaves(features).with_fixed(fixed), shapes


def train(rank: int | None, check: _RankCheck) -> list[Tensor]:
    """Value of each step, last gradients and weights of a rank, or of one process for all."""
    model = Layers(check.subject)
    run = model if rank is None else DistributedDataParallel(model)
    weights = [*model.layers.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    values = []
    for step, sizes in enumerate(check.steps):
        batch, shapes = check.batch(step)
        if rank is not None:
            begin = sum(sizes[:rank])
            batch = batch.entries(slice(begin, begin + sizes[rank]))
        optimizer.zero_grad()
        value = run(batch, shapes)
        value.backward()
        optimizer.step()
        values.append(value.detach().double())
    return [torch.stack(values), *(x.grad for x in weights), *(x.detach() for x in weights)]


def _require_ranks_equal(check: _RankCheck) -> None:
    """Fail unless the mean over ranks and the weights of each equal one process's."""
    values, *expected = train(None, check)
    try:
        ranks = run_on_ranks(train, len(check.steps[0]), check)
    except ChildProcessError as error:
        last = str(error).strip().splitlines()[-1]
        raise CheckFailedError(f'a process failed: {last}') from error
    mean = torch.stack([x[0] for x in ranks]).mean(0)
    for rank in ranks:
        require_same(rank[1:], expected, 'a gradient or weight of a rank', rtol=1e-5, atol=1e-7)
    require_same(mean, values, 'the mean value of the ranks', rtol=1e-5, atol=1e-7)


def _cannot_be_sent(subject: Subject) -> str:
    try:
        pickle.dumps(subject)
    except Exception as error:
        return f'it cannot be sent to a process: {error}'
    return ''


OPTIONS = dict(is_usual=False, is_slow=True, excuse=_cannot_be_sent)


@check(**OPTIONS)
def _two_ranks(subject: Subject) -> None:
    """Two processes under DistributedDataParallel train as one process with the whole batch.

    A gather that detaches, or that sums where DistributedDataParallel averages, is a learning rate
    that depends on the number of GPUs, or a gradient of half of the pairs.
    """
    _require_ranks_equal(_RankCheck(subject, EVEN))


@check(**OPTIONS)
def _three_ranks(subject: Subject) -> None:
    """Three processes train as one: a factor of the world that is right for two shows here."""
    _require_ranks_equal(_RankCheck(subject, THREE))


@check(**OPTIONS)
def _uneven_ranks(subject: Subject) -> None:
    """Two processes with batches of unlike lengths train as one.

    The last batch of an epoch and the boxes of an image differ from rank to rank; a gather of equal
    shapes hangs there, or a mean of means weighs the samples unlike.
    """
    _require_ranks_equal(_RankCheck(subject, UNEVEN))


@check(**OPTIONS)
def _rank_without_positives(subject: Subject) -> None:
    """A rank whose labels are all zero, next to one with all classes, trains as one process.

    A rank that returns early takes no part in the collective, and the others wait for it.
    """
    _require_ranks_equal(_RankCheck(subject, EVEN, one_class_on_last=True))
