"""An entry of weight w counts as w entries, in every registered loss of scores."""

from dataclasses import replace

import pytest
import torch
from registered_losses import CLASSES, NO_WEIGHTS, Weighted, cases, subject_of_case, weighted_cases

from mmrank.errors import UserError
from mmrank.losses import APLoss, StableAPLoss
from mmrank.testing import parametrize_with_checks

CASES = [replace(x, kind='rows') for x in weighted_cases()]
every_loss = pytest.mark.parametrize('case', CASES, ids=str)
COUNTS = torch.tensor([2, 1, 0, 3, 1, 1, 2, 0, 1, 2, 1, 1])


def copies_of(batch):
    """The batch with each entry as often as it counts, and the entry of each copy."""
    index = torch.arange(len(COUNTS)).repeat_interleave(COUNTS)
    return batch.entries(index), index


def summed(gradients, index):
    return [x.new_zeros(len(COUNTS), *x.shape[1:]).index_add(0, index, x) for x in gradients]


@every_loss
def test_weights_are_copies(case):
    """With what is absent broken; three steps, because a state may count otherwise."""
    weighted = case.build()
    repeated = case.build()
    for seed in range(3):
        batch = case.batch(seed=seed)
        copies, index = copies_of(batch)
        expected = copies.gradients(repeated)
        broken = batch.mapped(
            lambda x: (
                torch.where((COUNTS == 0).view(-1, *[1] * (x.dim() - 1)), torch.nan, x)
                if x.dim() > 1
                else x
            )
        )
        value, gradients = broken.gradients(Weighted(weighted, COUNTS.double()))
        torch.testing.assert_close(value, expected[0], rtol=1e-11, atol=1e-12)
        assert value > 0
        for found, other in zip(gradients, summed(expected[1], index)):
            torch.testing.assert_close(found, other, rtol=1e-9, atol=1e-12)
    for name, state in weighted.state_dict().items():
        if state.is_floating_point():
            torch.testing.assert_close(state, repeated.state_dict()[name], rtol=1e-5, atol=1e-7)


@every_loss
def test_a_weight_of_each_score(case):
    """(n, C) weights of the classes of a row, equal in each, are those of the row."""
    batch = case.batch()
    weight = torch.rand(12, generator=torch.Generator().manual_seed(3)).double() + 0.5
    value, gradients = batch.gradients(Weighted(case.build(), weight))
    wide = weight[:, None].expand(12, CLASSES)
    found = batch.gradients(Weighted(case.build(), wide))
    torch.testing.assert_close((value, gradients), found)
    # Weights count: without them it is another loss.
    assert not torch.equal(value, batch.gradients(case.build())[0])


@every_loss
def test_equal_weights_are_none(case):
    batch = case.batch()
    expected = batch.gradients(case.build())
    for ones in (torch.ones(12), torch.ones(12, CLASSES), torch.ones(12).long()):
        found = batch.gradients(Weighted(case.build(), ones))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('loss', [APLoss, StableAPLoss])
def test_many_weighted_scores_are_copies(loss):
    """More pairs than a matrix holds: they are counted by intervals."""
    g = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(3000, generator=g, dtype=torch.float64)
    labels = torch.rand(3000, generator=g) < 0.1
    weight = torch.randint(4, (3000,), generator=g).double()
    given = weight.clone()
    index = torch.arange(3000).repeat_interleave(weight.long())
    scores.requires_grad_()
    values = []
    for seen, entries in ((weight, slice(None)), (None, index)):
        value = loss()(scores[entries], labels[entries], seen)
        values.append((value, *torch.autograd.grad(value, scores)))
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-13)
    assert torch.equal(weight, given)


@pytest.mark.parametrize('loss', [APLoss, StableAPLoss])
@pytest.mark.parametrize(
    ('weight', 'message'),
    [
        (torch.tensor([1.0, -1, 1]), 'finite and >= 0.*Fix: 0 for what does not count.*-1'),
        (torch.tensor([1.0, torch.inf, 1]), 'finite and >= 0'),
        (torch.tensor([1.0, torch.nan, 1]), 'weight is NaN at .1.'),
        (torch.ones(2), 'weight must have shape'),
    ],
)
def test_other_weights_are_refused(loss, weight, message):
    with pytest.raises((UserError, ValueError), match=message):
        loss()(torch.randn(3), torch.tensor([1, 0, 0]), weight)


@pytest.mark.parametrize('name', NO_WEIGHTS)
def test_a_loss_without_weights_says_why(name):
    for case in cases(name):
        if case.kind == 'rows':
            with pytest.raises(UserError, match='takes no weights but 0 and 1: .*Fix: weight'):
                case.batch().of(Weighted(case.build(), torch.full((12,), 2.0)))


CHECKS = ('permutation', 'bfloat16', 'float16', 'strided', 'state_dict', 'meta', 'no_element')


@parametrize_with_checks([subject_of_case(x) for x in weighted_cases()], checks=CHECKS)
def test_contract(subject, check):
    assert check(subject).outcome != 'refused' or check.name == 'no_element'


@pytest.mark.slow
@parametrize_with_checks(
    [subject_of_case(x) for x in {x.name: x for x in weighted_cases()}.values()], checks=['compile']
)
def test_compiled(subject, check):
    check(subject)
