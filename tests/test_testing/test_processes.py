"""Processes that ``mmrank.testing`` starts."""

import pytest
from gloo_processes import run_on_ranks


def _fails_on_one_rank(rank):
    if rank == 1:
        raise ValueError('no such batch')
    return rank


def test_an_error_of_a_rank_is_the_callers():
    with pytest.raises(ChildProcessError, match='(?s)process failed: .*no such batch'):
        run_on_ranks(_fails_on_one_rank, 2)
