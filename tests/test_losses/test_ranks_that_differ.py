"""Ranks with unlike dtypes, with equal rows, and a rank that evaluates alone, on gloo processes.

Autocast may leave one rank in half precision alone, such as one without
boxes. A collective of unlike dtypes ends the process.
"""

import pytest
import torch
from gloo_processes import run_on_ranks

from mmrank.distributed import all_gather_lists, rows_and_dtype
from mmrank.errors import UserError
from mmrank.losses import EmbeddingLoss, InfoNCELoss, SigLIPLoss, SogCLRLoss, StableAPLoss

pytestmark = pytest.mark.processes


def _agreement(rank):
    own = torch.arange(3 + rank).float().requires_grad_()
    mask = torch.ones(1, 3 + rank, dtype=torch.bool)
    dtype = torch.bfloat16 if rank else torch.float16
    joined, _ = all_gather_lists(own.to(dtype)[None], mask, _world())
    same, _ = all_gather_lists(own.half()[None], mask, _world())
    counts, agreed = rows_and_dtype(own.to(dtype)[:, None], _world())
    assert (joined.dtype, same.dtype) == (torch.float32, torch.float16)
    assert (counts, agreed) == ([3, 4], torch.float32)
    _refuse_gathered(rank)
    # A rank that evaluates does not wait for the others.
    values = [loss.eval()(*rows) for loss, rows in _losses(0)] if rank == 0 else []
    return [joined, *values]


def _losses(seed):
    """Losses of embeddings, each with rows of the seed."""
    generator = torch.Generator().manual_seed(seed)
    rows, others = torch.randn(2, 8, 4, generator=generator)
    labels = torch.arange(8) % 2
    loss = EmbeddingLoss(StableAPLoss(tau=0.3, score_range=(-1, 1), score_penalty=0.0))
    yield loss, (rows, labels)
    yield InfoNCELoss(), (rows, others)
    yield SogCLRLoss(8), (rows, others, torch.arange(8))
    yield SigLIPLoss(), (rows, others)


def _refuse_gathered(rank):
    for loss, rows in _losses(0):
        with pytest.raises(UserError, match='the same 8 embeddings on every rank'):
            loss(*rows)
    # Of a dead network all rows are equal, on all ranks: nothing was gathered.
    for loss, (rows, *rest) in _losses(rank):
        assert loss(torch.ones_like(rows), *rest).isfinite()


def _world():
    return torch.distributed.group.WORLD


def test_ranks_agree_or_say_why_not():
    one, other = run_on_ranks(_agreement, 2)
    assert torch.equal(one[0], other[0])
    alone = [loss.eval()(*rows) for loss, rows in _losses(0)]
    torch.testing.assert_close(one[1:], alone)
