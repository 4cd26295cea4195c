"""Ranks whose scores or embeddings have unlike dtypes, on gloo processes.

Autocast may leave one rank in half precision alone, such as one without
boxes. A collective of unlike dtypes ends the process.
"""

import pytest
import torch
from gloo_processes import run_on_ranks

from mmrank.distributed import all_gather_lists, rows_and_dtype

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
    return [joined]


def _world():
    return torch.distributed.group.WORLD


def test_equal_dtypes_are_kept_and_unlike_ones_widened():
    one, other = run_on_ranks(_agreement, 2)
    assert torch.equal(one[0], other[0])
