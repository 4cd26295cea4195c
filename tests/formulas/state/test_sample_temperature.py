"""State per sample: what is unusable, sums, checkpoints; steps: test_contrastive_losses.py."""

import itertools
import math

import pytest
import subjects
import torch
from mmengine.runner.checkpoint import load_state_dict as mmengine_load
from torch import nn

from mmrank.state.sample_state import _SampleGroups

CPU = torch.device('cpu')


def step(state, ids, log_batch, gradient):
    ids = torch.as_tensor(ids)
    state.fetch(ids, CPU)
    state.update(ids, torch.stack([torch.as_tensor(x) for x in (log_batch, gradient)]))


def temperature(size=6, **kwargs):
    return subjects.temperature(size, **{'eta': 0.1, **kwargs})


def test_unusable_values_leave_a_sample():
    state, alone = temperature(), temperature()
    for x in (state, alone):
        step(x, [0, 1], [1.0, 1.0], [0.5, 0.5])
    step(state, [0, 0, 1, 1], [math.nan, math.inf, -math.inf, 1.0], [0.5, 0.5, 0.5, math.nan])
    assert torch.equal(state.table, alone.table)
    # A usable row beside them counts alone.
    step(state, [0, 0], [math.nan, 2.0], [0.5, 0.5])
    step(alone, [0], [2.0], [0.5])
    assert torch.equal(state.table, alone.table)


def test_momentum_of_one_keeps_no_momentum():
    state = temperature(beta1=1, tau_init=0.5)
    assert list(state.state_dict()) == ['log_s', 'tau']
    step(state, [0], [0.0], [0.5])
    step(state, [0], [0.0], [-1.0])
    assert float(state.tau[0]) == pytest.approx(0.5 - 0.05 + 0.1)


def test_sums_have_the_same_bits_in_any_order():
    values = torch.tensor([0.1, 1e16, -1e16, 0.3, 7.0], dtype=torch.float64)
    ids = torch.tensor([4, 4, 4, 4, 1])
    sums = set()
    for order in itertools.permutations(range(5)):
        order = torch.tensor(order)
        total = _SampleGroups(ids[order]).sum(values[order])
        sums.add(total[order == 0].item())
    assert len(sums) == 1


@pytest.mark.parametrize('load', [nn.Module.load_state_dict, mmengine_load])
def test_a_state_that_is_not_loaded_begins_anew_beside_weights_that_are(load):
    trained = nn.Sequential(nn.Linear(2, 2), temperature())
    step(trained[1], [1, 4], [0.1, 1 / 3], [0.7, -0.2])
    fresh = nn.Sequential(nn.Linear(2, 2), temperature(5, load_state=False))
    load(fresh, trained.state_dict())
    assert torch.equal(fresh[1].table, temperature(5).table)
    assert torch.equal(fresh[0].weight, trained[0].weight)
