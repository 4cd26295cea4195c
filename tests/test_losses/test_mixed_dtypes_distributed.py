"""Ranks whose scores or embeddings have unlike dtypes, on gloo processes.

Autocast may leave one rank in half precision alone, such as one without
boxes. A collective of unlike dtypes ends the process.
"""

from dataclasses import replace

import pytest
import torch
from gloo_processes import run_on_ranks
from rank_batches import queries_of_all_ranks
from registered_losses import cases
from torch.nn.functional import normalize

from mmrank.distributed import all_gather_lists, rows_and_dtype

pytestmark = pytest.mark.processes

CASES = [case for case in cases() if case.settings.get('mode') != 'sogram']
#: Dtypes of two ranks, and that in which a single process has both.
MIXED = [
    (torch.float16, torch.float32, torch.float32),
    (torch.bfloat16, torch.float16, torch.float32),
    (torch.float64, torch.float32, torch.float64),
]
HALF = 6


def _whole(case, dtypes):
    """The batch of both ranks, rounded as each of them has it."""
    batch = case.batch(2 * HALF)
    if case.kind == 'queries':
        # Before it is rounded: both ways see the same numbers.
        batch = batch.mapped(normalize)
    *own, joined = dtypes
    return batch.mapped(
        lambda x: torch.cat([part.to(d).to(joined) for part, d in zip(x.split(HALF), own)])
    )


def _value(case, batch):
    loss = case.build()
    leaves = tuple(x.detach().requires_grad_() for x in batch.leaves)
    # Autocast to bfloat16, to which float16 is foreign, changes nothing.
    with torch.autocast('cpu', torch.bfloat16):
        if case.kind == 'queries':
            value = loss.embedding_loss(queries_of_all_ranks(*leaves, *batch.fixed))
        else:
            value = replace(batch, leaves=leaves).of(loss)
    gradients = torch.autograd.grad(value, leaves)
    assert all(g.dtype == x.dtype for g, x in zip(gradients, leaves))
    return value.detach(), gradients


def _on_rank(rank):
    results = []
    for case in CASES:
        for dtypes in MIXED:
            own = _whole(case, dtypes).entries(slice(rank * HALF, (rank + 1) * HALF))
            own = own.mapped(lambda x, d=dtypes[rank]: x.to(d))
            value, gradients = _value(case, own)
            results += [value.double(), *(x.double() for x in gradients)]
    return results


@pytest.mark.slow
def test_ranks_agree_on_a_dtype():
    ranks = [iter(x) for x in run_on_ranks(_on_rank, 2)]
    for case in CASES:
        for dtypes in MIXED:
            value, gradients = _value(case, _whole(case, dtypes))
            of_ranks = torch.stack([next(rank) for rank in ranks])
            where = f'{case} {dtypes}'
            torch.testing.assert_close(
                of_ranks.mean(0),
                value.double(),
                rtol=1e-4,
                atol=1e-5,
                msg=lambda text, where=where: f'{where}: {text}',
            )
            for expected in gradients:
                # What DistributedDataParallel takes the mean of.
                joined = torch.cat([next(rank) for rank in ranks]) / 2
                torch.testing.assert_close(
                    joined,
                    expected.double(),
                    rtol=2e-2,
                    atol=1e-2 * float(expected.abs().max()) + 1e-6,
                    msg=lambda text, where=where: f'{where}: {text}',
                )
    assert all(next(rank, None) is None for rank in ranks)


def _agreement(rank):
    own = torch.arange(3 + rank).float().requires_grad_()
    mask = torch.ones(1, 3 + rank, dtype=torch.bool)
    dtype = torch.bfloat16 if rank else torch.float16
    joined, _ = all_gather_lists(own.to(dtype)[None], mask, _world())
    same, _ = all_gather_lists(own.half()[None], mask, _world())
    counts, agreed = rows_and_dtype(own.to(dtype)[:, None], _world())
    assert (joined.dtype, same.dtype) == (torch.float32, torch.float16)
    assert (counts, agreed) == ([3, 4], torch.float32)
    return [joined]


def _world():
    return torch.distributed.group.WORLD


def test_equal_dtypes_are_kept_and_unlike_ones_widened():
    one, other = run_on_ranks(_agreement, 2)
    assert torch.equal(one[0], other[0])
