import copy

import pytest
import torch

from mmrank.state import ClassPrior

ROWS = torch.tensor([2, 0, 2])


def test_given_priors():
    assert ClassPrior(0.3).of(5, ROWS).tolist() == [0.3]
    prior = ClassPrior([0.1, 0.2, 0.3], 3)
    assert prior.of(3, ROWS).tolist() == [0.3, 0.1, 0.3]
    assert prior.of(3, None).tolist() == [0.1, 0.2, 0.3]


def test_counts_and_the_scale_of_the_authors():
    prior = ClassPrior('counts', 4)
    with pytest.raises(RuntimeError, match='Fix: loss.set_class_counts'):
        prior.of(4, None)
    prior.set_counts([1, 3, 0, 4])
    assert prior.of(4, None).tolist() == [0.125, 0.375, 0.5, 0.5]
    prior = ClassPrior('counts', 3, maximum=0.1)
    prior.set_counts(torch.tensor([5, 10, 20]))
    torch.testing.assert_close(prior.of(3, None), torch.tensor([0.025, 0.05, 0.1]).double())
    given = ClassPrior([0.2, 0.4], 2, maximum=0.1)
    torch.testing.assert_close(given.of(2, None), torch.tensor([0.05, 0.1]).double())


def test_half_precision_does_not_round_it_and_checkpoints_leave_it_out():
    prior = ClassPrior([1e-8, 0.1], 2)
    moved = copy.deepcopy(prior).half()
    assert moved.prior.dtype == torch.float64
    assert torch.equal(moved.prior, prior.prior)
    assert prior.state_dict() == {}


def test_a_model_without_values_keeps_it():
    with torch.device('meta'):
        prior = ClassPrior('counts', 2)
    prior.to('meta').set_counts([1, 3])
    assert prior.prior.is_meta
    assert prior.to_empty(device='cpu').of(2, None).tolist() == [0.25, 0.75]
