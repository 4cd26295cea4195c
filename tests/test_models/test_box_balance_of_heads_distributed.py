"""One weight of the box loss on all ranks."""

import pytest
import torch

pytest.importorskip('mmengine')
from gloo_processes import run_on_ranks

from mmrank.losses.ranking.rank_sort import box_balance


def _ratio_of_rank(rank):
    ratio = box_balance(torch.tensor([1.0, 3.0][rank]), torch.tensor([0.0, 2.0][rank]))
    return [ratio]


@pytest.mark.slow
def test_ratio_is_that_of_the_means_over_the_ranks():
    """Also on a rank without a single box."""
    (first,), (second,) = run_on_ranks(_ratio_of_rank, 2)
    assert first == second == 2.0
