"""What labels, weights and groups mean: the same in every door, or refused with the fix."""

import copy
import warnings

import numpy as np
import pytest
import torch
from random_batches import assert_same_gradients, made_up
from registered_losses import cases
from torch.nn.functional import one_hot

from mmrank import functional
from mmrank.functional import auroc, average_precision, ndcg, partial_auroc
from mmrank.losses import (
    APLoss,
    EmbeddingLoss,
    HeadLoss,
    SmoothAPLoss,
    SOAPLoss,
    StableAPLoss,
    VarifocalLoss,
)

CASES = cases()
of_rows = [case for case in CASES if case.kind == 'rows']
every_rows_loss = pytest.mark.parametrize('case', of_rows, ids=str)


def call(case, scores, target, *weight, **heads):
    """The loss of a case with another target; values of boxes are those of its positives."""
    loss = case.build()
    if getattr(loss, 'box_input', None):
        number = int((target > 0).sum()) if target.dim() == 2 else len(target)
        key = 'box_loss' if loss.box_input == 'loss' else 'quality'
        heads[key] = torch.full((number,), 0.5, dtype=scores.dtype)
    if getattr(loss, 'keeps_samples', False):
        heads['sample_idx'] = torch.arange(len(scores))
    return loss(scores, target, *weight, **heads)


@every_rows_loss
def test_labels_count_by_value(case):
    """Of every loss of rows: unknown, smoothed and, but of levels, graded labels are refused."""
    if not getattr(case.build(), 'use_sigmoid', True):
        pytest.skip('softmax takes class indices alone')
    hard = one_hot(torch.arange(6) % 3, 3).double()
    unknown = hard.clone()
    unknown[:, 2] = -1
    message = 'must be 0 and 1, '
    wrong = [unknown, 0.9 * hard + 0.1 / 3, 2 * hard]
    if getattr(case.details, 'takes_levels', False):
        message = 'must be whole numbers >= 0, 0 for a negative, '
        wrong = wrong[:2]
    for target in wrong:
        with pytest.raises(ValueError, match=f'target {message}got numbers from .* Fix: '):
            call(case, made_up(6, 3).double(), target)
        if isinstance(case.details, HeadLoss) and not getattr(case.details, 'keeps_samples', False):
            with pytest.raises(ValueError, match=f'{message}|num_classes=3'):
                call(case, made_up(6, 3).double(), target, group=torch.arange(6))
    with pytest.raises(ValueError, match=r'target must be in \[0, 1\]'):
        call(case, made_up(6, 3).double(), unknown, avg_factor=6)


@every_rows_loss
def test_weights_are_finite_and_not_negative(case):
    scores = made_up(6, 3).double()
    weight = torch.tensor([5.0, 1, 1, 1, 1, 0.1])
    for wrong in (-weight, torch.inf * weight):
        with pytest.raises(ValueError, match='weight must be finite and >= 0'):
            call(case, scores, torch.arange(6) % 3, wrong)


@pytest.mark.parametrize('metric', [average_precision, auroc, partial_auroc])
def test_metrics_take_labels_by_value(metric):
    scores, labels = made_up(9), torch.arange(9) % 3 == 0
    expected = metric(scores, labels)
    for given in (labels.long(), labels.float(), labels.to(torch.uint8)):
        assert torch.equal(metric(scores, given), expected)
    for wrong in (2 * labels.long() - 1, scores):
        with pytest.raises(ValueError, match='is_positive must be 0 and 1, got numbers from'):
            metric(scores, wrong)
    with pytest.raises(ValueError, match='gain must be >= 0, got -1'):
        ndcg(scores[None], 2 * labels[None].long() - 1)
    with pytest.raises(TypeError, match='is_positive must be a tensor, got list'):
        metric(scores, labels.tolist())


@pytest.mark.parametrize(
    ('name', 'settings'),
    [
        ('smooth_ap_loss', {}),
        ('listwise_ap_loss', {}),
        ('recall_at_k_loss', dict(ks=(1,))),
        ('auc_loss', {}),
        ('blackbox_ap_loss', dict(lam=1.0, margin=0.1)),
    ],
)
def test_functions_take_labels_by_value(name, settings):
    function = getattr(functional, name)
    scores, labels = made_up(9), torch.arange(9) % 3 == 0
    assert torch.equal(
        function(scores, labels, **settings), function(scores, 1 * labels, **settings)
    )
    for wrong in (2 * labels.long() - 1, scores):
        with pytest.raises(ValueError, match='is_positive must be 0 and 1'):
            function(scores, wrong, **settings)
    with pytest.raises(ValueError, match='mask must be finite and >= 0'):
        function(scores, labels, mask=scores, **settings)


def test_embeddings_without_a_class():
    x, labels = made_up(6, 4), torch.tensor([0, 0, 1, 1, -1, -1])
    loss = EmbeddingLoss(SmoothAPLoss())
    with pytest.raises(ValueError, match='query_labels must be >= 0, got -1'):
        loss(x, labels)
    # In a gallery they are of no query.
    others = torch.tensor([0, 0, 1, 1, 2, 3])
    expected = loss(x[:4], labels[:4], ref_emb=x, ref_labels=others)
    assert torch.equal(loss(x[:4], labels[:4], ref_emb=x, ref_labels=labels), expected)


def test_labels_of_the_gallery_are_those_given():
    x, labels, other = made_up(6, 4), torch.arange(6) // 2, torch.arange(6) % 2
    loss = EmbeddingLoss(SmoothAPLoss(tau=0.1))
    assert loss(x, labels, ref_embeddings=x, ref_labels=other) != loss(x, labels)


def test_batches_without_a_positive_are_warned_of_once():
    loss = EmbeddingLoss(StableAPLoss())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter('always')
        for _ in range(30):
            loss(made_up(4, 3), torch.arange(4))
    assert [str(x.message)[:31] for x in warned] == ['none of the first 10 batches ha']


def test_group_and_values_of_boxes():
    scores, labels, group = made_up(12), torch.arange(12) % 3 == 0, torch.arange(12) // 6
    quality = torch.rand(4, generator=torch.Generator().manual_seed(1))

    def loss():
        return SmoothAPLoss(tau=1.0, quality=0.9)

    value = loss()(scores, labels, group=group, quality=quality)
    parts = [
        loss()(scores[rows], labels[rows], quality=quality[box])
        for rows, box in ((slice(0, 6), slice(0, 2)), (slice(6, 12), slice(2, 4)))
    ]
    torch.testing.assert_close(value, sum(parts) / 2)
    whole = VarifocalLoss()(scores, labels, quality=quality)
    torch.testing.assert_close(VarifocalLoss()(scores, labels, quality=quality, group=group), whole)
    with pytest.raises(ValueError, match='does not take box_loss'):
        APLoss()(scores, labels, group=group, box_loss=quality)
    with pytest.raises(ValueError, match='group is NaN'):
        SmoothAPLoss()(scores, labels, group=torch.full((12,), torch.nan))


@pytest.mark.parametrize('kind', [np.int64, np.int32])
def test_numbers_of_numpy_are_settings(kind):
    scores, labels = made_up(6, 3).double(), torch.arange(6) % 3
    values = []
    for number in (int, kind):
        stable = StableAPLoss(mode='per_class', num_classes=number(3))
        soap = SOAPLoss(num_samples=number(6))
        value = soap(scores[:, 0], labels == 0, sample_idx=torch.arange(6))
        values.append(torch.stack([stable(scores, labels), value]))
    assert torch.equal(*values)


def test_each_row_is_a_list():
    """``group=torch.arange(n)`` of (n, C) scores: value and gradient of a loop over the rows."""
    scores = made_up(7, 5).double().requires_grad_()
    labels = (made_up(7, 5, seed=1) > 0.3).long()
    labels[:, 0] = 1
    value = SmoothAPLoss(tau=0.5)(scores, labels, group=torch.arange(7))
    rows = [SmoothAPLoss(tau=0.5)(s, y) for s, y in zip(scores, labels)]
    expected = torch.stack(rows).mean()
    assert_same_gradients(value, expected, scores, rtol=1e-12, atol=1e-14)
    assert torch.autograd.grad(value, scores)[0].any()


def test_a_gallery_that_is_the_queries_leaves_the_query_out():
    x, labels = made_up(20, 4), torch.arange(20) % 4
    levels = torch.stack([labels % 2, labels], 1)
    calls = [
        (functional.retrieval_metrics, labels),
        (functional.retrieval_curves, labels),
        (functional.level_metrics, levels),
    ]
    for function, y in calls:
        expected, found = function(x, y), function(x, y, x, y)
        assert repr(found) == repr(expected), function.__name__


def test_a_printed_loss_shows_what_was_set():
    assert repr(StableAPLoss(tau=0.3, quality=0)).startswith(
        'StableAPLoss(\n  tau=0.3, quality=0\n'
    )
    assert 'tau=0.5' in repr(copy.deepcopy(SmoothAPLoss(tau=0.5)))
    assert 'loss=' not in repr(EmbeddingLoss(SmoothAPLoss())).split('\n')[0]
