"""Every door into a loss says the same of labels and states; what each registered loss refuses."""

from functools import partial

import numpy as np
import pytest
import torch
from random_batches import made_up
from registered_losses import cases
from torch.nn.functional import one_hot

from mmrank.errors import UserTypeError
from mmrank.functional import k_nearest_votes
from mmrank.losses import (
    AUCLoss,
    EmbeddingLoss,
    LDAMLoss,
    SmoothAPLoss,
    SOPRCLoss,
    StableAPLoss,
    SumLoss,
)

CASES = cases()
QUERIES = [case for case in CASES if case.kind == 'queries' and case.name != 'SumLoss']


def of_rows(loss, batch, labels, **options):
    """A call without boxes."""
    if getattr(loss, 'keeps_samples', False):
        options['sample_idx'] = batch.fixed[-1]
    return loss(batch.leaves[0], labels, **options)


#: Labels that are no tensors, and the way to one.
NO_TENSORS = {
    'list': ([0, 1, 0, 1], 'torch.as_tensor'),
    'array': (np.array([0, 1, 0, 1]), 'torch.as_tensor'),
    'strings': (['cat', 'dog', 'cat', 'dog'], 'classes.index'),
    'array of strings': (np.array(['cat', 'dog', 'cat', 'dog']), 'classes.index'),
    'string': ('cat', 'classes.index'),
    'number': (1, 'torch.as_tensor'),
}


@pytest.mark.parametrize('case', CASES, ids=str)
def test_labels_that_are_no_tensors(case):
    """The last is the labels, or the numbers of samples or pairs."""
    given, fix = NO_TENSORS['strings']
    batch, loss = case.batch(), case.build()
    call = batch.with_fixed([*batch.fixed[:-1], given]).of
    if case.kind == 'views':
        fix = r'torch.as_tensor\(sample_idx\)'  # numbers of samples, and no classes
    if case.kind == 'rows':
        call = partial(of_rows, batch=batch, labels=given)
    with pytest.raises(UserTypeError, match=rf'must be a tensor.*Fix: .*{fix}'):
        call(loss)


@pytest.mark.parametrize('name', NO_TENSORS)
def test_other_doors_with_labels_that_are_no_tensors(name):
    given, fix = NO_TENSORS[name]
    scores, labels = made_up(4), torch.arange(4) % 2
    calls = [
        lambda: EmbeddingLoss(SmoothAPLoss())(made_up(4, 3), given),
        lambda: SmoothAPLoss()(scores, given, group=labels),
        lambda: SmoothAPLoss()(scores, labels, group=given),
        lambda: SmoothAPLoss()(scores, labels, given, group=labels),
        lambda: k_nearest_votes(made_up(4, 3), made_up(4, 3), given, 2),
    ]
    for call in calls:
        with pytest.raises(UserTypeError, match=rf'must be a tensor.*Fix: .*{fix}'):
            call()


@pytest.mark.parametrize('case', QUERIES, ids=str)
def test_one_hot_labels_of_embeddings(case):
    batch = case.batch()
    (labels,) = batch.fixed
    with pytest.raises(ValueError, match='Fix: .*argmax'):
        batch.with_fixed([one_hot(labels)]).of(case.build())
    with pytest.raises(ValueError, match='Fix: labels'):
        batch.with_fixed([torch.rand(len(labels))]).of(case.build())
    with pytest.raises(ValueError, match='must be >= 0'):
        batch.with_fixed([labels - 1]).of(case.build())


def test_a_loss_of_embeddings_leaves_the_loss_that_is_given():
    inner = StableAPLoss()
    given = SumLoss([inner, AUCLoss()])
    before = str(vars(inner)), inner.mean_positive.score_range, dict(inner.state_dict())
    loss = EmbeddingLoss(given)
    assert loss.loss.losses[0].bound != inner.bound
    loss(made_up(8, 3), torch.arange(8) // 2)
    after = str(vars(inner)), inner.mean_positive.score_range, dict(inner.state_dict())
    assert after == before
    assert {*map(id, loss.parameters())} == {*map(id, given.parameters())}


def test_a_batch_of_samples_by_torch_func():
    """Labels are looked at within a transform, too."""
    loss = LDAMLoss([25, 10, 5], use_sigmoid=False)
    scores, labels = made_up(5, 3), torch.arange(5) % 3

    def value(scores, labels):
        return loss(scores[None], labels[None])

    found = torch.func.vmap(torch.func.grad(value))(scores, labels)
    for row, label, slope in zip(scores, labels, found):
        leaf = row.clone().requires_grad_()
        torch.testing.assert_close(slope, torch.autograd.grad(value(leaf, label), leaf)[0])
    with pytest.raises(ValueError, match='target holds class indices'):
        torch.func.grad(value)(scores[0], labels[0] + 40)


def test_a_wrong_label_in_a_compiled_step_is_named():
    compiled = torch.compile(SmoothAPLoss(), backend='eager')
    with pytest.raises(RuntimeError, match='target must be whole numbers from 0 to 3'):
        compiled(made_up(4, 3), torch.tensor([1, 2, 3, 40]))


@pytest.mark.slow  # the compiler, as of the other losses in test_compiled_losses.py
def test_semi_variance_compiled_with_dynamic_shapes():
    """A limit of the scores was taken for a number that changes."""
    settings = dict(tau1=1.0, tau2=0.1, score_range=(-5.0, 5.0), lam1=1.0, lam2=5.0)
    plain, other = SOPRCLoss(**settings), SOPRCLoss(**settings)
    compiled = torch.compile(other, fullgraph=True, dynamic=True, backend='aot_eager')
    for size in (9, 14):
        scores = made_up(size, 2, seed=size).requires_grad_()
        labels = torch.arange(size) % 3
        values = [x(scores, labels, avg_factor=1) for x in (plain, compiled)]
        torch.testing.assert_close(*[torch.autograd.grad(x, scores)[0] for x in values])
