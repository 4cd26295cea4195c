"""An entry of weight w counts as w entries in every loss; a class as it says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from subjects import (
    CLASSES,
    DEFERRED,
    ROWS,
    break_absent,
    build,
    cases,
    row_of,
    subject_of_case,
    weigh,
    weighted_cases,
)

from mmrank.errors import UserError
from mmrank.losses import (
    APLoss,
    CLIPLoss,
    EmbeddingLoss,
    FlatCLRLoss,
    InBatchLoss,
    InBatchSoftmaxLoss,
    LogitAdjustedCELoss,
    StableAPLoss,
    VICRegLoss,
)
from mmrank.testing import parametrize_with_checks

WEIGHTED = weighted_cases()
#: Those without a weight in the batch.
CASES = [replace(x, kind=x.kind.removeprefix('weighted_')) for x in WEIGHTED]
OF_ROWS = [x for x in CASES if x.kind == 'rows']
WITHOUT = [x for x in cases() if x.kind == 'rows' and not row_of(x.name).takes_weights]
OF_PAIRS = [x for x in CASES if x.kind != 'rows']
every_pair = pytest.mark.parametrize('case', OF_PAIRS, ids=str)
#: Both halves have one sum, as sogram takes two samples; there are 12 training pairs.
COUNTS = torch.tensor([2, 1, 0, 2, 0, 1, 2, 0, 1, 2, 1, 0])
COPIES = torch.arange(12).repeat_interleave(COUNTS)
PRESENT = COUNTS.nonzero()[:, 0]
SHARES = COUNTS * torch.linspace(0.6, 1.4, 12, dtype=torch.float64)
ONES = torch.ones(12, dtype=torch.float64)


def steps(case, weight=None, entries=slice(None), absent=None):
    """Values and gradients of three steps, and the state.

    A state may count otherwise, and rows of one sample, which it may keep, are of unlike weights.
    With ``absent``, a number, what has no weight is NaN and has this label.
    """
    loss = case.build()
    found = []
    for seed in range(3):
        batch = case.batch(seed=seed)
        if case.kind == 'rows':
            batch = batch.with_fixed([*batch.fixed[:-1], batch.fixed[-1] % 4])
        leaves = [x.clone().requires_grad_() for x in batch.leaves]
        batch = batch.with_leaves(leaves)
        if absent is not None:
            batch = break_absent(batch, weight, absent)
        value = weigh(batch.entries(entries), weight).of(loss)
        own = [x for x in loss.parameters() if x.requires_grad]
        found += [value, *torch.autograd.grad(value, [*leaves, *own])]
    return [x.detach() for x in (*found, *loss.state_dict().values())]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        # Parameters and states are float32.
        rtol, atol = (1e-9, 1e-12) if one.dtype == torch.float64 else (1e-5, 1e-7)
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize('case', CASES, ids=str)
def test_weights_are_copies(case):
    """In value, gradient and state. With weights a pair of a sample may come up again."""
    ones = ONES if case.name == 'InBatchLoss' else None
    found = steps(case, COUNTS.double(), absent=-100)
    assert_same(found, steps(case, ones, COPIES))
    assert found[0] != 0


@pytest.mark.parametrize('case', [*CASES, *WITHOUT], ids=str)
def test_what_has_no_weight_takes_no_part(case):
    """Whatever its label is."""
    expected = steps(case, None, PRESENT)
    for label, dtype in ((-100, torch.bool), (-1, torch.float64), (255, torch.bool)):
        assert_same(steps(case, (COUNTS > 0).to(dtype), absent=label), expected)
    if case.kind == 'rows':
        assert_same(steps(case, COUNTS > 0, absent=torch.nan), expected)


@pytest.mark.parametrize('host', [True, False])
@every_pair
def test_no_weight_is_absence(case, host, monkeypatch):
    """Also where the host does not look at weights."""
    if not host:
        for module in ('tensors', 'losses.two_tower.in_batch', 'losses.two_tower.in_batch_softmax'):
            monkeypatch.setattr(f'mmrank.{module}.can_sync', lambda x: False)
    assert_same(steps(case, SHARES, absent=-100), steps(case, SHARES[PRESENT], PRESENT))
    assert_same(steps(case, COUNTS > 0, absent=-100), steps(case, None, PRESENT))


@pytest.mark.parametrize('case', [x for x in OF_ROWS if x.details.use_sigmoid], ids=str)
def test_a_weight_of_each_score(case):
    """(n, C) weights of the classes of a row, equal in each, are those of the row."""
    batch = case.batch()
    weight = torch.rand(12, generator=torch.Generator().manual_seed(3)).double() + 0.5
    value, gradients = weigh(batch, weight).gradients(case.build())
    wide = weight[:, None].expand(12, CLASSES)
    found = weigh(batch, wide).gradients(case.build())
    torch.testing.assert_close((value, gradients), found)
    # Weights count: without them it is another loss.
    assert not torch.equal(value, batch.gradients(case.build())[0])


#: A positive does not meet itself, or there are means over the negatives and the anchors.
SCALE_FREE = (
    'AUCLoss',
    'BarlowTwinsLoss',
    'BimodalISogCLRLoss',
    'DRLoss',
    'HAPLoss',
    'ISogCLRLoss',
    'ListwiseAPLoss',
    'MAUCLoss',
    'SOAPLoss',
    'SogCLRLoss',
    'SpectralContrastiveLoss',
    'StableAPLoss',
)
SCALE_FREE += tuple(name for name, row in ROWS.items() if row.is_pointwise)


@pytest.mark.parametrize(
    'case', [x for x in CASES if x.name in SCALE_FREE or x.settings.get('refined')], ids=str
)
def test_only_ratios_of_weights_count(case):
    batch = case.batch()
    weight = torch.rand(12, generator=torch.Generator().manual_seed(3)).double() + 0.5
    # Those of rows may sum up to less than 1.
    scales = (1, 3, 0.01 if case.kind == 'rows' else 0.2)
    one, *others = [weigh(batch, weight * x).gradients(case.build()) for x in scales]
    for other in others:
        torch.testing.assert_close(one, other)


#: What takes no weights, or no batch of one entry, whose message says so.
NOT_ALONE = ('InBatchLoss', 'PMLLoss')


@pytest.mark.parametrize('case', [*cases(), DEFERRED], ids=str)
@pytest.mark.parametrize('kept', [0, 7])
def test_all_but_one_left_out_is_a_batch_of_one(case, kept):
    """Value, gradients and state, and the same of a second step."""
    kept = min(kept, len(case.batch().fixed[-1]) - 1)
    alone, weighted = case.build(), case.build()
    batch = case.batch()
    batch = batch.with_leaves([x.requires_grad_() for x in batch.leaves])
    weight = torch.zeros(len(batch.fixed[-1]))
    weight[kept] = 1
    if case.name in NOT_ALONE and case.settings.get('mode') not in ('pos_neg', 'in_batch'):
        with pytest.raises(ValueError, match='at least 2 pairs|at least one pair|takes no weights'):
            weigh(batch, weight).of(weighted)
        return
    for _ in range(2):
        alone.__dict__['_lone_batches'] = 0
        found = weigh(batch, weight).of(weighted)
        expected = weigh(batch.entries([kept]), None).of(alone)
    torch.testing.assert_close(found, expected)
    slopes = []
    for value, loss in ((found, weighted), (expected, alone)):
        own = [x for x in loss.parameters() if x.requires_grad]
        slopes.append(torch.autograd.grad(value, [*batch.leaves, *own], allow_unused=True))
    torch.testing.assert_close(*slopes)
    torch.testing.assert_close(weighted.state_dict(), alone.state_dict())


@pytest.mark.parametrize('case', [*cases(), DEFERRED], ids=str)
def test_weights_that_require_a_gradient_are_refused(case):
    batch = case.batch()
    weight = torch.ones(len(batch.fixed[-1]), requires_grad=True)
    with pytest.raises(UserError, match=r'weight requires a gradient.*Fix: weight.detach\(\)'):
        weigh(batch, weight).of(case.build())


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


@pytest.mark.parametrize('name', [x for x in ROWS if not row_of(x).takes_weights])
def test_a_loss_without_weights_says_why(name):
    for case in cases(name):
        if case.kind == 'rows':
            with pytest.raises(UserError, match='takes no weights but 0 and 1. Fix: weight'):
                weigh(case.batch(), torch.full((12,), 2.0)).of(case.build())


#: All pairs and views; of rows the last settings.
SUBJECTS = {x.name if x.kind == 'weighted_rows' else str(x): subject_of_case(x) for x in WEIGHTED}
#: A GPU does not wait (meta), a state resumes to the bit, half precision is near float64.
CHECKS = ('autocast', 'bfloat16', 'strided', 'state_dict', 'meta', 'no_element')


@parametrize_with_checks([*SUBJECTS.values()], checks=CHECKS)
def test_contract(subject, check):
    assert check(subject).outcome != 'refused' or check.name == 'no_element'


@pytest.mark.slow
@parametrize_with_checks(
    [*{x.name: subject_of_case(x) for x in WEIGHTED}.values()], checks=['compile']
)
def test_compiled(subject, check):
    assert check(subject).outcome == 'passed'


@pytest.mark.parametrize('bimodal', [False, True])
def test_an_absent_sample_is_not_the_nearest(bimodal):
    """The exponentials of all others would be 0 in float32."""
    rows = torch.tensor([[1.0, 0], [-1, 0], [torch.nan, 0]])
    loss = FlatCLRLoss(tau=0.005, bimodal=bimodal)
    found = loss(rows, rows, weight=torch.tensor([1.0, 1, 0]))
    torch.testing.assert_close(found, loss(rows[:2], rows[:2]))
    assert found < -300


@pytest.mark.parametrize('case', cases('InBatchSoftmaxLoss'), ids=str)
def test_candidates_are_repeated(case):
    """Candidates of no pair have weights as well, and change the share of the pairs."""
    left, right = case.batch().leaves
    rows, cols = case.batch().fixed
    rows, pairs = rows[:5], COPIES[COPIES < 5]
    found = case.build()(left[:5], right, rows, cols, weight=COUNTS.double())
    expected = case.build()(left[pairs], right[COPIES], rows[pairs], cols[COPIES])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_all_absent():
    """Nothing is learnt of a batch without weight; a sum of pairs has no meaning then."""
    for loss in (CLIPLoss(), VICRegLoss(), InBatchSoftmaxLoss(frequency='none')):
        rows = torch.full((4, 3), torch.nan, requires_grad=True)
        ids = [torch.arange(4)] * 2 if isinstance(loss, InBatchSoftmaxLoss) else []
        value = loss(rows, rows, *ids, weight=torch.zeros(4))
        value.backward()
        assert value == 0
        assert not rows.grad.any()


@every_pair
def test_wrong_weights_are_refused(case):
    weight = torch.ones(12)
    with pytest.raises(ValueError, match='weight must have shape .12,., got .11,.. Fix'):
        weigh(case.batch(), weight[:11]).of(case.build())
    weight[3] = -1
    with pytest.raises(ValueError, match='weight .*Fix'):
        weigh(case.batch(), weight).of(case.build())


def test_sums_of_weights_that_are_no_number_of_pairs():
    rows = torch.arange(4)
    loss = InBatchLoss()
    loss.set_pairs(rows, rows, (4, 4))
    for total, words in ((5, 'above 1 on average'), (1, 'at least 2 pairs'), (0.5, 'at least one')):
        with pytest.raises(ValueError, match=words):
            loss(torch.eye(4), torch.eye(4), rows, rows, weight=torch.full((4,), total / 4))
    with pytest.raises(ValueError, match=r'more than 1. Fix: weight / weight.mean\(\)'):
        VICRegLoss()(torch.eye(4), torch.eye(4), weight=torch.full((4,), 0.25))


RETRIEVAL = [x for x in cases() if x.kind == 'queries' and x.name != 'PMLLoss']
RETRIEVAL = [x for x in RETRIEVAL if row_of(x.name).takes_weights]


@pytest.mark.parametrize('case', RETRIEVAL, ids=str)
def test_images_of_a_weight_are_copies(case):
    """Of queries and of a gallery; an absent image may be broken."""
    g = torch.Generator().manual_seed(0)
    queries, gallery = torch.randn(2, 12, 8, generator=g, dtype=torch.float64)
    labels, classes = torch.randint(3, (2, 12), generator=g)
    weights = COUNTS.double(), COUNTS.flip(0).double()
    index, ref_index = (torch.arange(12).repeat_interleave(x.long()) for x in weights)
    broken = torch.where(weights[1][:, None] == 0, torch.nan, gallery)
    leaves = [x.requires_grad_() for x in (queries, gallery, broken)]
    loss = EmbeddingLoss(case.build())
    other = EmbeddingLoss(case.build())
    for _ in range(2):
        expected = other(
            queries[index], labels[index], None, gallery[ref_index], classes[ref_index]
        )
        found = loss(
            queries, labels, None, broken, classes, weight=weights[0], ref_weight=weights[1]
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        assert found > 0
    slopes = torch.autograd.grad(found, [leaves[0], leaves[2]])
    others = torch.autograd.grad(expected, leaves[:2])
    torch.testing.assert_close(slopes, others, rtol=1e-8, atol=1e-12)


def test_a_batch_that_searches_itself_has_one_weight():
    x = torch.randn(6, 4, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 0, 1])
    weight = torch.tensor([1.0, 2, 0, 1, 0.5, 1])
    loss = EmbeddingLoss(APLoss())
    expected = loss(
        x, labels, ref_embeddings=x, ref_labels=labels, weight=weight, ref_weight=weight
    )
    assert torch.equal(loss(x, labels, weight=weight), expected)
    kept = weight > 0
    expected = loss(x[kept], labels[kept], weight=weight[kept])
    torch.testing.assert_close(loss(x, labels, weight=weight), expected)


CLASS_WEIGHT = [0.5, 2.0, 1.25]
SIGMOID_CASES = [x for x in WEIGHTED if x.kind == 'weighted_rows' and x.name != 'SumLoss']
SIGMOID_CASES = [x for x in SIGMOID_CASES if x.details.use_sigmoid]
every_sigmoid_loss = pytest.mark.parametrize('case', SIGMOID_CASES, ids=str)


def with_classes(case, **more):
    settings = dict(case.settings, num_classes=CLASSES, **more)
    return build(case.name, settings)


@every_sigmoid_loss
def test_positives_of_a_class_count_so_often(case):
    batch = case.batch()
    *rest, labels, _, weight = batch.fixed
    loss = with_classes(case, class_weight=CLASS_WEIGHT)
    found = batch.gradients(loss)
    if getattr(loss, 'mode', None) == 'per_class':
        alone = [
            batch.of(with_classes(case, class_weight=torch.eye(3)[i].tolist())) for i in range(3)
        ]
        counted = torch.tensor(CLASS_WEIGHT) * torch.tensor([x != 0 for x in alone])
        mean = (counted * torch.stack(alone).detach()).sum() / counted.sum()
        if case.name not in ('StableAPLoss', 'SOPRCLoss'):  # They have a term of all lists.
            torch.testing.assert_close(found[0], mean.to(found[0].dtype), rtol=1e-6, atol=1e-8)
        return
    entries = weight[:, None].repeat(1, CLASSES)
    has_class = labels < CLASSES
    rows = has_class.nonzero()[:, 0]
    entries[rows, labels[rows]] *= torch.tensor(CLASS_WEIGHT).double()[labels[rows]]
    plain = batch.with_fixed([*rest, labels, batch.fixed[-2], entries])
    torch.testing.assert_close(found, plain.gradients(with_classes(case)))


def test_of_a_softmax():
    settings = dict(class_counts=[5, 3, 2], num_classes=3, use_sigmoid=False)
    scores = torch.randn(6, 3)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    weight = torch.tensor(CLASS_WEIGHT)[labels]
    found = LogitAdjustedCELoss(class_weight=CLASS_WEIGHT, **settings)(scores, labels)
    torch.testing.assert_close(found, LogitAdjustedCELoss(**settings)(scores, labels, weight))


def test_auto_is_the_inverse_of_the_share():
    counts = [90, 9, 1]
    loss = APLoss(3, class_weight='auto')
    loss.class_weights.set_class_counts(counts, 500)
    weight = loss.class_weights.of(3)
    # Every class has the same share, and the positives have the mean 1.
    torch.testing.assert_close(weight * torch.tensor(counts), torch.full((3,), 100 / 3).double())
    loss = APLoss(3, class_weight=('auto', 0.5))
    loss.class_weights.set_class_counts([4, 0, 1])
    weight = loss.class_weights.of(3)
    assert weight[2] == 2 * weight[0]
    assert 4 * weight[0] + weight[2] == pytest.approx(5)


#: What ``class_weight`` takes of three classes, and the weights that it means.
DOORS = {
    'array': (np.array([1, 2, 3]), [1, 2, 3]),
    'float32 array': (np.array([1, 2, 3], np.float32), [1, 2, 3]),
    'tensor': (torch.tensor([1, 2, 3]), [1, 2, 3]),
    'range': (range(1, 4), [1, 2, 3]),
    'dict of NumPy': ({np.int64(2): np.float32(5)}, [1, 1, 5]),
    'dict': ({2: 5.0}, [1, 1, 5]),
    'dict of JSON': ({'0': 2, '2': 5.0}, [2, 1, 5]),
    'dict of names': ({'platelet': 5.0, 'red': 2}, [2, 1, 5]),
}


@pytest.mark.parametrize('door', DOORS)
def test_class_weights_are_a_list_or_by_class(door, monkeypatch):
    given, expected = DOORS[door]
    loss = APLoss(class_weight=given)
    names = dict(classes=('red', 'white', 'platelet'))
    monkeypatch.setattr(loss.class_weights.training_set, 'metainfo', lambda: names)
    assert loss.class_weights.of(3).tolist() == expected


@every_sigmoid_loss
def test_the_advice_about_counts_works(case):
    """As the message of ``'auto'`` without counts says, which may have the keys of JSON."""
    loss = with_classes(case, class_weight='auto')
    with pytest.raises(RuntimeError, match=r'Fix: loss.set_class_counts\(counts\)'):
        case.batch().of(loss)
    counts = {'0': 90, '1': 9, '2': 1}
    loss.set_class_counts(counts, 500)
    expected = with_classes(case, class_weight=[10 / 27, 100 / 27, 100 / 3])
    if 'class_counts' in case.settings:
        expected.set_class_counts(counts, 500)
    torch.testing.assert_close(case.batch().gradients(loss), case.batch().gradients(expected))


def test_a_class_that_is_not_there(monkeypatch):
    names = dict(classes=('red', 'white', 'platelet'))
    loss = APLoss(class_weight={'platelets': 5.0})
    monkeypatch.setattr(loss.class_weights.training_set, 'metainfo', lambda: names)
    with pytest.raises(UserError, match="'platelets', which is not a class. Fix: 'platelet'"):
        loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 3]))
