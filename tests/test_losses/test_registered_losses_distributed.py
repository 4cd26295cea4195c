"""Each registered loss on several gloo processes equals one process.

With ``scope='local'`` it equals one process that has the batches one after the other. Only one
start of the processes: it costs most of the time.
"""

import inspect
from dataclasses import replace

import pytest
import torch
from gloo_processes import run_on_ranks
from rank_batches import SIZES, RankModel, batch_of_all_ranks, share
from registered_losses import DEFERRED, Case, cases, weighted_cases
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import ErrorDrivenLoss

pytestmark = pytest.mark.processes


def _is_tested(case: Case) -> bool:
    # Each rank holds two samples there: test_in_batch_loss_module.py.
    return case.settings.get('mode') != 'sogram'


CASES = [case for case in cases() if _is_tested(case)]
CASES += {x.name: x for x in weighted_cases()}.values()
CASES.append(DEFERRED)
#: Their lists are judged by a mean over all ranks: test_shared_state_distributed.py.
SHARED = ('SOPRCLoss', 'StableAPLoss', 'SumLoss')


def _cases(world):
    """Every case, of two processes with its last settings in a mode alone; and local ones."""
    found = CASES
    if world == 2:
        found = {(x.name, x.kind, x.settings.get('mode')): x for x in CASES}.values()
    local = [
        replace(case, settings=dict(case.settings, scope='local'))
        for case in found
        if case.kind != 'queries'
        and case.name not in SHARED
        and 'scope' in inspect.signature(type(case.details)).parameters
        and 'gather' not in case.settings
    ]
    return found, local


def _train(model, batches):
    """Value of each step, last gradients, weights and state."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values = []
    for batch in batches:
        optimizer.zero_grad()
        value = model(batch)
        value.backward()
        optimizer.step()
        values.append(value.detach())
    model = getattr(model, 'module', model)
    weights = [x for x in model.parameters() if x.requires_grad]
    return [
        torch.stack(values),
        *(x.grad for x in weights),
        *(x.detach() for x in weights),
        *(x.double() for x in model.loss.state_dict().values()),
    ]


def _on_rank(rank, world):
    results = []
    every, local = _cases(world)
    for case in every:
        model = RankModel(case)
        # As if the loss were outside: the parameters of a loss need no DistributedDataParallel.
        own = [name for name, _ in model.named_parameters() if name.startswith('loss.')]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, own)
        model = DistributedDataParallel(model)
        batches = []
        for step, sizes in enumerate(SIZES[world]):
            batch = batch_of_all_ranks(case, step, sizes)
            batches.append(batch.entries(share(sizes, rank)))
        results += _train(model, batches)
    for case in local:
        loss = case.build()
        results += _locally(case, loss, [case.batch().entries(HALVES[world][rank])])
        # Samples that come up on several ranks: all keep the same of them.
        batch = case.batch(seed=1)
        loss.train()
        batch.of(loss)
        results += [x.double() for x in loss.state_dict().values()]
    return results


#: Entries of each rank, no sample on two of them.
HALVES = {2: [slice(0, 7), slice(7, 11)], 3: [slice(0, 5), slice(5, 8), slice(8, 11)]}


def _locally(case, loss, batches):
    """Value and gradients of each batch, and the state after the last."""
    results = []
    for batch in batches:
        value, gradients = batch.gradients(loss)
        results += [value, *gradients]
    # Of the losses by error the state is a mean over the ranks, and only shown.
    if isinstance(loss, ErrorDrivenLoss):
        return results
    return [*results, *(x.double() for x in loss.state_dict().values())]


@pytest.mark.parametrize('world', [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_equal_one_process(world):
    ranks = [iter(x) for x in run_on_ranks(_on_rank, world, world)]
    every, local = _cases(world)
    for case in every:
        steps = enumerate(SIZES[world])
        values, *expected = _train(
            RankModel(case), [batch_of_all_ranks(case, step, sizes) for step, sizes in steps]
        )
        of_ranks = torch.stack([next(rank) for rank in ranks])
        torch.testing.assert_close(of_ranks.mean(0), values, rtol=1e-6, atol=1e-8, msg=str(case))
        for wanted in expected:
            for rank in ranks:
                torch.testing.assert_close(
                    next(rank),
                    wanted.detach(),
                    rtol=1e-6,
                    atol=1e-7,
                    msg=lambda text, case=case: f'{case}: {text}',
                )
    for case in local:
        loss = case.build()
        batches = [case.batch().entries(part) for part in HALVES[world]]
        if isinstance(loss, ErrorDrivenLoss):
            # A rank balances by its own steps.
            expected = [x for batch in batches for x in _locally(case, case.build(), [batch])]
        else:
            expected = _locally(case, loss, batches)
        number = 1 + len(batches[0].leaves)
        for i, rank in enumerate(ranks):
            own = expected[i * number : (i + 1) * number] + expected[len(ranks) * number :]
            for wanted in own:
                torch.testing.assert_close(next(rank), wanted, msg=f'{case}, rank {i}')
        for _ in loss.state_dict():
            first, *others = [next(rank) for rank in ranks]
            assert all(torch.equal(first, x) for x in others), case
    assert all(next(rank, None) is None for rank in ranks)
