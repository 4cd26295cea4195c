"""Losses on several gloo processes equal one process, also of ranks that differ.

With ``scope='local'`` each registered one equals one process that has the batches one after the
other. Only one start of the processes for all: it costs most of the time.
"""

import inspect
from dataclasses import replace

import pytest
import torch
from gloo_processes import run_on_ranks
from subjects import (
    CLASSES,
    DEFERRED,
    SAMPLES,
    Case,
    break_absent,
    cases,
    make,
    share,
    weigh,
    weighted_cases,
)
from torch import nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from mmrank.distributed import all_gather_lists, all_labelled_rows, sizes_and_dtype, world_group
from mmrank.errors import UserError
from mmrank.losses import (
    EmbeddingBatch,
    EmbeddingLoss,
    ErrorDrivenLoss,
    InfoNCELoss,
    SigLIPLoss,
    SogCLRLoss,
    SOPRCLoss,
    StableAPLoss,
)

pytestmark = pytest.mark.processes


#: Entries of each rank, step by step: uneven, and a rank without any.
SIZES = {2: [(7, 5), (5, 2), (4, 0)], 3: [(5, 4, 3), (4, 0, 3)]}


def queries_of_all_ranks(embeddings, labels):
    """What a retrieval head makes: the queries of all ranks, and the own gallery."""
    group = world_group()
    if group is None:
        return EmbeddingBatch.of_one_batch(embeddings, labels)
    numbers = labels if labels.dim() == 2 else labels[:, None]
    joined, numbers, _, begin = all_labelled_rows(embeddings, numbers, group)
    columns = torch.arange(begin, begin + len(embeddings))
    itself = torch.arange(len(joined))[:, None] == columns
    return EmbeddingBatch(joined, numbers, embeddings, labels, itself)


def batch_of_all_ranks(case, step, sizes):
    """Features of the samples of all ranks, labels and indices."""
    batch = make(case.kind, case.build(), sum(sizes), seed=step)
    g = torch.Generator().manual_seed(step)
    fixed = list(batch.fixed)
    if case.kind in ('rows', 'views'):
        # A sample comes up on several ranks, and twice on one.
        fixed[-1] = fixed[-1] % (SAMPLES // 8)
    if step == 1 and case.kind == 'rows' and getattr(case.details, 'use_sigmoid', True):
        # The last rank has no positive.
        fixed[-2] = fixed[-2].clone()
        fixed[-2][sum(sizes[:-1]) :] = CLASSES
    return replace(
        batch,
        leaves=tuple(
            torch.randn(sum(sizes), 6, generator=g, dtype=torch.float64) for _ in batch.leaves
        ),
        fixed=tuple(fixed),
    )


class RankModel(nn.Module):
    """A layer for each input of the loss, and the loss."""

    def __init__(self, case):
        super().__init__()
        torch.manual_seed(0)
        self.loss = case.build()
        self.layers = nn.ModuleList(
            nn.Linear(6, x[0].numel()).double() for x in case.batch().leaves
        )

    def forward(self, batch):
        outputs = [f(x) for f, x in zip(self.layers, batch.leaves)]
        # Box values are one number a row, in (0, 1).
        outputs[1:] = [x.sigmoid().squeeze(1) if x.size(1) == 1 else x for x in outputs[1:]]
        if batch.kind == 'queries':
            queries = queries_of_all_ranks(normalize(outputs[0]), *batch.fixed)
            value = self.loss.embedding_loss(queries)
        else:
            value = batch.with_leaves(outputs).of(self.loss)
        # No parameter is left out where a rank has no box.
        return value + 0 * sum(x.sum() for x in outputs)


def _is_tested(case: Case) -> bool:
    # Each rank holds two samples there: test_in_batch_losses.py.
    return case.settings.get('mode') != 'sogram'


CASES = [case for case in cases() if _is_tested(case)]
CASES += {x.name: x for x in weighted_cases() if _is_tested(x)}.values()
CASES.append(DEFERRED)
#: Their lists are judged by a mean over all ranks: the last tests here.
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
        # Its xi is the largest margin of all samples: one batch after another is not all at once.
        and (case.name, case.kind) != ('NUCLRLoss', 'weighted_views')
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


def _agreement(rank):
    own = torch.arange(3 + rank).float().requires_grad_()
    mask = torch.ones(1, 3 + rank, dtype=torch.bool)
    dtype = torch.bfloat16 if rank else torch.float16
    joined, *_ = all_gather_lists(own.to(dtype)[None], mask, _world())
    same, *_ = all_gather_lists(own.half()[None], mask, _world())
    own = own.to(dtype)[:, None]
    sizes, agreed = sizes_and_dtype([len(own)], dtype, _world(), None, own)
    assert (joined.dtype, same.dtype) == (torch.float32, torch.float16)
    assert (sizes, agreed) == ([[3], [4]], torch.float32)
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


SHARED_SIZES = (40, 23)
SOPRC = dict(
    num_classes=5, prior=0.2, tau1=1.0, tau2=0.05, lam1=0.2, lam2=0.3, score_range=(-9.0, 9.0)
)
SOPRC_MODES = [dict(mode='per_class'), {}]
SOPRC_SIZES = (5, 2)


def scores_of_all_ranks():
    """Scores of three classes, and the class of each row; 3 is the background."""
    g = torch.Generator().manual_seed(5)
    scores = torch.randn(sum(SHARED_SIZES), 3, generator=g, dtype=torch.float64)
    return scores, torch.randint(0, 12, (sum(SHARED_SIZES),), generator=g).clamp(max=3)


def lists_of_all_ranks():
    """Scores of seven lists, whether each is a positive, a negative or left out, and classes."""
    g = torch.Generator().manual_seed(9)
    scores = torch.rand(7, 12, generator=g)
    kind = torch.randint(0, 3, (7, 12), generator=g)
    return scores, kind, torch.tensor([4, 0, 0, 4, 2, 0, 2])


def stable_ap_on_rank(rank):
    scores, target = (x[share(SHARED_SIZES, rank)] for x in scores_of_all_ranks())
    loss = StableAPLoss(3, scope='local', t=0.0, rho='batch')
    auto = StableAPLoss(3, scope='local', t=0.0)
    auto(scores, target)
    return [loss(scores, target), loss.mean_positive.mean, auto.imbalance.mean]


def soprc_on_rank(rank):
    """Three tensors of each setting."""
    results = []
    for mode in SOPRC_MODES:
        scores, kind, rows = (x[share(SOPRC_SIZES, rank)] for x in lists_of_all_ranks())
        loss = SOPRCLoss(scope='local', **{**SOPRC, **mode})
        for _ in range(2):
            value = loss.loss_of_lists(scores, kind == 0, kind == 1, list_classes=rows)
        results += [value, loss.score_vector.vector, loss.score_vector.num_updates]
    return results


#: Each loss with its last settings in a mode; of the first rank some entries count otherwise.
WEIGHTED = {(x.name, x.kind, x.settings.get('mode')): x for x in cases() if _is_tested(x)}
WEIGHTED_SIZES = (7, 5)
WEIGHT = torch.tensor([2.0, 0, 1, 0.5, 0.5, 2, 1])


def weights_on_rank(case, rank, other):
    """Value, gradients and state, or the refusal, of a rank; of one process where it is None."""
    loss, batch = case.build(), case.batch()
    weight = torch.cat([WEIGHT, torch.ones(WEIGHTED_SIZES[1])])
    if rank is not None:
        batch = batch.entries(share(WEIGHTED_SIZES, rank))
        weight = other if rank else WEIGHT
    if weight is not None:
        batch = break_absent(batch, weight)
    leaves = [x.clone().requires_grad_() for x in batch.leaves]
    try:
        value = weigh(batch.with_leaves(leaves), weight).of(loss)
    except UserError as error:
        return str(error)
    state = [x.double() for x in loss.state_dict().values()]
    return [value.detach(), torch.autograd.grad(value, leaves), state]


def on_rank(rank):
    found = {'stable AP': stable_ap_on_rank(rank), 'SOPRC': soprc_on_rank(rank)}
    found['weights'] = [
        weights_on_rank(case, rank, other)
        for case in WEIGHTED.values()
        for other in (None, torch.ones(WEIGHTED_SIZES[1], dtype=torch.bool))
    ]
    return found


@pytest.fixture(scope='module')
def ranks():
    """What two ranks found, in one start of the processes: it costs most of the time."""
    return run_on_ranks(on_rank, 2)


def test_weights_on_one_rank_alone_are_ones_on_the_others(ranks):
    """None, or True in each place; a loss without weights refuses them on both ranks."""
    both = zip(*(found['weights'] for found in ranks))
    for case in WEIGHTED.values():
        # With None, and with True.
        found_of_ranks = [(rank, x) for _ in range(2) for rank, x in enumerate(next(both))]
        expected = weights_on_rank(case, None, None)
        if isinstance(expected, str):
            assert {expected} == {x for _, x in found_of_ranks}, case
            continue
        value, gradients, state = expected
        for rank, found in found_of_ranks:
            own = share(WEIGHTED_SIZES, rank)
            # DistributedDataParallel takes the mean.
            slopes = [2 * x[own] for x in gradients]
            wanted = [value, slopes, state]
            torch.testing.assert_close(found, wanted, msg=f'{case}, rank {rank}: {found[0]}')


def test_stable_ap_ranks_per_process_but_shares_the_state(ranks):
    """With t = 0 the loss does not depend on the mean positive score.

    The average of the risk is that of the ranks, each of which has a list.
    """
    scores, target = scores_of_all_ranks()
    whole = StableAPLoss(3, t=0.0)
    whole(scores, target)
    risks = []
    for rank, found in enumerate(ranks):
        loss, mean, _ = found['stable AP']
        part = share(SHARED_SIZES, rank)
        alone = StableAPLoss(3, t=0.0, rho='batch')
        torch.testing.assert_close(loss, alone(scores[part], target[part]))
        torch.testing.assert_close(mean, whole.mean_positive.mean)
        risks.append(alone.diagnostics['risk'])
    for found in ranks:
        average = found['stable AP'][2].double()
        torch.testing.assert_close(average, torch.stack(risks).mean().reshape(1))


def test_soprc_shares_the_vectors_of_the_classes(ranks):
    scores, kind, rows = lists_of_all_ranks()
    for case, mode in enumerate(SOPRC_MODES):
        setting = {**SOPRC, **mode}
        whole = SOPRCLoss(**setting)
        for _ in range(2):
            whole.loss_of_lists(scores, kind == 0, kind == 1, list_classes=rows)
        for rank, found in enumerate(ranks):
            value, vector, num_updates = found['SOPRC'][3 * case :][:3]
            assert torch.equal(num_updates, whole.score_vector.num_updates)
            torch.testing.assert_close(vector, whole.score_vector.vector)
            alone = SOPRCLoss(**setting)
            alone.load_state_dict(whole.state_dict())
            alone.eval()
            part = share(SOPRC_SIZES, rank)
            expected = alone.loss_of_lists(
                scores[part], kind[part] == 0, kind[part] == 1, list_classes=rows[part]
            )
            torch.testing.assert_close(value, expected)
