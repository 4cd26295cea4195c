"""What labels, weights, groups and broken numbers mean in every loss, or how it refuses them."""

import copy
import inspect
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from subjects import CLASSES, build, call_rows, cases, made_up
from torch.nn.functional import one_hot

from mmrank import functional
from mmrank.errors import UserTypeError
from mmrank.functional import (
    auroc,
    average_precision,
    dr_loss,
    k_nearest_votes,
    ndcg,
    partial_auroc,
)
from mmrank.losses import (
    APLoss,
    AUCLoss,
    DRLoss,
    EmbeddingLoss,
    HeadLoss,
    LDAMLoss,
    RankingLoss,
    SmoothAPLoss,
    SOAPLoss,
    StableAPLoss,
    SumLoss,
    VarifocalLoss,
)

CASES = cases()
ROWS = [case for case in CASES if case.kind == 'rows']
SMALL = [*{case.name: case for case in reversed(ROWS)}.values()]
every_case = pytest.mark.parametrize('case', ROWS, ids=str)
every_loss = pytest.mark.parametrize('case', SMALL, ids=str)


RANKINGS = [case for case in ROWS if isinstance(case.details, RankingLoss)]


def state_of(loss):
    return {name: x.clone() for name, x in loss.state_dict().items()}


@every_case
def test_labels_of_any_kind(case):
    """Indices, and 0 and 1 of each dtype, are the same labels; a box needs one class a row."""
    scores, labels, idx, boxes = case.rows()
    labels[:4] = torch.arange(4)
    if case.details.use_sigmoid is None:
        return  # softmax for indices, sigmoid for 0 and 1 of a class

    def value(target, boxes=None):
        return call_rows(case.build(), scores, target, idx, boxes)

    if not case.details.use_sigmoid:
        with pytest.raises(ValueError, match='one class per sample'):
            value(torch.zeros(12, CLASSES))
        return
    hot = one_hot(labels, CLASSES + 1)[:, :CLASSES]
    if getattr(case.details, 'box_input', None) and case.details.requires_boxes:
        with pytest.raises(ValueError, match='one box a'):
            value(hot, boxes)
        return
    expected = value(labels)
    for dtype in (torch.int32, torch.int64, torch.bool, torch.float32):
        assert torch.equal(value(hot.to(dtype)), expected)


#: Their lists share a mean, an average, a prior or a margin: tests of their own.
SHARED = ('AUCMLoss', 'MAUCLoss', 'ROADMAPLoss', 'SOAPLoss', 'SOPRCLoss', 'StableAPLoss', 'SumLoss')
PER_CLASS = [x for x in RANKINGS if x.name not in SHARED]


@pytest.mark.parametrize('case', PER_CLASS, ids=str)
def test_per_class_is_a_list_for_each(case):
    """The classes that have a positive are put together; DR-Loss has a margin for the others."""
    scores, labels, idx, boxes = case.rows()
    present = (0, 1, 2) if case.name == 'DRLoss' else (0, 2)
    labels = torch.where(sum(labels == c for c in present) > 0, labels, CLASSES)
    settings = dict(case.settings, mode='per_class')
    found = call_rows(build(case.name, settings), scores, labels, idx, boxes)
    settings['mode'] = 'flatten'
    settings.pop('num_classes', None)  # a column is none
    each = [
        call_rows(build(case.name, settings), scores[:, c], (labels == c).long(), idx, boxes)
        for c in present
    ]
    torch.testing.assert_close(found, sum(each) / len(present))


@pytest.mark.parametrize('case', [x for x in RANKINGS if x.name != 'DRLoss'], ids=str)
def test_without_a_positive_there_is_no_loss(case):
    """Nor a gradient, nor a step of the state, whatever the scores are; DR-Loss has a margin."""
    loss = case.build()
    before = state_of(loss)
    for number in (0, 1, 7):
        batch = case.batch().entries(slice(number))
        *boxes, labels, idx = batch.fixed
        batch = batch.with_fixed([*boxes, torch.full_like(labels, CLASSES), idx])
        scores, *boxes = batch.leaves
        for leaf in (scores, torch.full_like(scores, -torch.inf)):
            value, gradients = batch.with_leaves([leaf, *boxes]).gradients(loss)
            assert value == 0
            assert not any(x.any() for x in gradients)
    after = state_of(loss)
    assert before.keys() == after.keys()
    for name, x in before.items():
        assert torch.equal(x, after[name]), name


@every_loss
def test_bad_calls(case):
    """What heads of mmdet may pass; tensors that do not fit: test_invalid_tensors.py."""
    loss = case.build()
    scores, labels, *rest = case.rows()
    with pytest.raises(ValueError, match='reduction'):
        call_rows(loss, scores, labels, *rest, reduction_override='none')
    with pytest.raises(ValueError, match='from 0 to 11'):
        call_rows(loss, scores, torch.where(labels == 1, 11, labels), *rest)
    if isinstance(loss, HeadLoss):
        with pytest.raises(ValueError, match='use_sigmoid'):
            build(case.name, {**case.settings, 'use_sigmoid': False})
    if case.name == 'SumLoss':  # its parts look
        return
    loss.num_columns = CLASSES + 1
    with pytest.raises(ValueError, match=f'num_classes={CLASSES + 1} but cls_score has'):
        call_rows(loss, scores, labels, *rest)


QUERIES = [case for case in CASES if case.kind == 'queries' and case.name != 'SumLoss']


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
    """Or the numbers of samples or pairs, which stand last."""
    given, fix = NO_TENSORS['strings']
    batch = case.batch()
    call = batch.with_fixed([*batch.fixed[:-1], given]).of
    if case.kind == 'views':
        fix = r'torch.as_tensor\(sample_idx\)'  # numbers of samples, and no classes
    if case.kind == 'rows':
        call = partial(call_rows, scores=batch.leaves[0], target=given, idx=batch.fixed[-1])
    with pytest.raises(UserTypeError, match=rf'must be a tensor.*Fix: .*{fix}'):
        call(case.build())


@pytest.mark.parametrize('name', NO_TENSORS)
def test_doors_with_labels_that_are_no_tensors(name):
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

    def looks():
        return str(vars(inner)), inner.mean_positive.score_range, dict(inner.state_dict())

    before = looks()
    loss = EmbeddingLoss(given)
    assert loss.loss.losses[0].bound != inner.bound
    loss(made_up(8, 3), torch.arange(8) // 2)
    assert looks() == before
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


def call(case, target, **heads):
    """The loss of six rows with other labels; values of boxes are those of its positives."""
    boxes = torch.full((int((target > 0).sum()),), 0.5, dtype=torch.float64)
    scores = made_up(6, 3).double()
    return call_rows(case.build(), scores, target, torch.arange(6), boxes, **heads)


@every_case
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
            call(case, target)
        if isinstance(case.details, HeadLoss) and not getattr(case.details, 'keeps_samples', False):
            with pytest.raises(ValueError, match=f'{message}|num_classes=3|and group= has one'):
                call(case, target, group=torch.arange(6))
    with pytest.raises(ValueError, match=r'target must be in \[0, 1\]'):
        call(case, unknown, avg_factor=6)


#: Functions that take labels of 0 and 1, and settings; the first three are metrics.
OF_LABELS = [
    (average_precision, {}),
    (auroc, {}),
    (partial_auroc, {}),
    (functional.smooth_ap_loss, {}),
    (functional.listwise_ap_loss, {}),
    (functional.recall_at_k_loss, dict(ks=(1,))),
    (functional.auc_loss, {}),
    (functional.blackbox_ap_loss, dict(lam=1.0, margin=0.1)),
]


@pytest.mark.parametrize(('function', 'settings'), OF_LABELS)
def test_functions_take_labels_by_value(function, settings):
    scores, labels = made_up(9), torch.arange(9) % 3 == 0
    expected = function(scores, labels, **settings)
    for given in (labels.long(), labels.float(), labels.to(torch.uint8)):
        assert torch.equal(function(scores, given, **settings), expected)
    for wrong in (2 * labels.long() - 1, scores):
        with pytest.raises(ValueError, match='is_positive must be 0 and 1, got numbers from'):
            function(scores, wrong, **settings)
    with pytest.raises(TypeError, match='is_positive must be a tensor, got list'):
        function(scores, labels.tolist(), **settings)
    if 'mask' in inspect.signature(function).parameters:
        with pytest.raises(ValueError, match='mask must be finite and >= 0'):
            function(scores, labels, mask=scores, **settings)


def test_a_gain_below_zero_is_refused():
    with pytest.raises(ValueError, match='gain must be >= 0, got numbers from -1 to 1'):
        ndcg(torch.zeros(1, 2), torch.tensor([[1, -1]]))


def test_embeddings_without_a_class():
    x, labels = made_up(6, 4), torch.tensor([0, 0, 1, 1, -1, -1])
    loss = EmbeddingLoss(SmoothAPLoss())
    with pytest.raises(ValueError, match='query_labels must be >= 0, got -1'):
        loss(x, labels)
    # In a gallery they are of no query.
    others = torch.tensor([0, 0, 1, 1, 2, 3])
    expected = loss(x[:4], labels[:4], ref_emb=x, ref_labels=others)
    assert torch.equal(loss(x[:4], labels[:4], ref_emb=x, ref_labels=labels), expected)


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
    first = loss()(scores[:6], labels[:6], quality=quality[:2])
    second = loss()(scores[6:], labels[6:], quality=quality[2:])
    torch.testing.assert_close(value, (first + second) / 2)
    whole = VarifocalLoss()(scores, labels, quality=quality)
    torch.testing.assert_close(VarifocalLoss()(scores, labels, quality=quality, group=group), whole)
    with pytest.raises(ValueError, match='does not take box_loss'):
        APLoss()(scores, labels, group=group, box_loss=quality)
    with pytest.raises(ValueError, match='group is NaN'):
        SmoothAPLoss()(scores, labels, group=torch.full((12,), torch.nan))


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


@pytest.mark.parametrize('case', [x for x in CASES if x.kind == 'queries'], ids=str)
def test_embeddings_whose_products_overflow(case):
    loss = case.build()
    rows, labels = 1e20 * made_up(8, 4), torch.arange(8) % CLASSES
    rows.requires_grad_()
    value = EmbeddingLoss(loss)(rows, labels)
    (slope,) = torch.autograd.grad(value, rows)
    assert value.isfinite()
    assert slope.isfinite().all()


def test_labels_of_the_gallery_are_those_given():
    x, labels, other = made_up(6, 4), torch.arange(6) // 2, torch.arange(6) % 2
    loss = EmbeddingLoss(SmoothAPLoss(tau=0.1))
    assert loss(x, labels, ref_embeddings=x, ref_labels=other) != loss(x, labels)


def test_a_wrong_label_in_a_compiled_step_is_named():
    compiled = torch.compile(SmoothAPLoss(), backend='eager')
    with pytest.raises(RuntimeError, match='target must be whole numbers from 0 to 3'):
        compiled(made_up(4, 3), torch.tensor([1, 2, 3, 40]))


def test_numbers_of_numpy_are_settings():
    scores, labels = made_up(6, 3), torch.arange(6) % 3
    found = StableAPLoss(mode='per_class', num_classes=np.int64(3))(scores, labels)
    assert found == StableAPLoss(mode='per_class', num_classes=3)(scores, labels)
    assert SOAPLoss(num_samples=np.int32(6)).num_samples == 6


def test_short_lists_leave_the_margin_alone():
    """One negative has no spread for tau='auto' to measure."""
    scores, index = made_up(40), torch.arange(40)
    loss = StableAPLoss(tau='auto')
    loss(scores, index % 2 == 0, group=index // 2)
    assert not loss.spread.num_updates.any()
    assert loss.diagnostics['tau'] == 1


def test_a_group_of_weight_zero_adds_nothing_to_dr_loss():
    scores, labels, group = made_up(6), torch.tensor([1, 0, 0, 0, 0, 0]), torch.arange(6) // 3
    value = DRLoss()(scores, labels, (group == 0).float(), group=group)
    torch.testing.assert_close(value, DRLoss()(scores[:3], labels[:3]))
    assert dr_loss(scores, labels, mask=torch.zeros(6)) == 0
