"""What every registered loss keeps to, a new one by being registered."""

import copy
import io
import pickle
import re
from dataclasses import replace

import pytest
import torch
from registered_losses import CLASSES, SETTINGS, build, cases, kinds, loss_names
from torch import nn

from mmrank.losses import RankingLoss, StableAPLoss
from mmrank.models.federated_annotations import counted_scores
from mmrank.registry import MODELS

CASES = cases()
every_loss = pytest.mark.parametrize('case', CASES, ids=str)
#: Losses whose gradient is not the derivative of the value that they show,
#: and why.
OWN_GRADIENT = {
    'ALRPLoss': 'error-driven update',
    'APLoss': 'error-driven update',
    'BlackBoxAPLoss': 'difference to a perturbed ranking',
    'GradedAPLoss': 'error-driven update',
    'IABCELoss': 'the target of a positive is a constant',
    'MALLoss': 'the weight of a negative is a constant',
    'PartialAUCLoss': 'the weights of the pairs are constants',
    'RankSortLoss': 'error-driven update',
    'SOPRCLoss': 'the ranks among the positives are constants',
    'SimCoLoss': 'the ratio of the two temperatures is a constant',
    'StableAPLoss': 'the weights of the positives are constants',
    'SumLoss': 'it has StableAPLoss as a part',
    'VarifocalLoss': 'the weight of a negative is a constant',
}
#: A cross-entropy is infinite where a score is.
POINTWISE = ('AsymmetricLoss', 'BalancedSoftmaxLoss', 'ClassBalancedCELoss', 'LDAMLoss')
POINTWISE += ('LogitAdjustedCELoss',)
POINTWISE += ('IABCELoss', 'MALLoss', 'QualityFocalLoss', 'VarifocalLoss')


def assert_finite(value, gradients):
    assert value.isfinite()
    assert all(x.isfinite().all() for x in gradients)


def assert_same(one, other, **tolerance):
    """Compare values and gradients."""
    torch.testing.assert_close(one[0], other[0], **tolerance)
    torch.testing.assert_close(one[1], other[1], **tolerance)


@pytest.mark.parametrize('name', loss_names())
def test_a_batch_is_known(name):
    for settings in SETTINGS.get(name, [{}]):
        if name == 'PMLLoss':
            pytest.importorskip('pytorch_metric_learning')
        assert kinds(build(name, settings))


def test_the_table_names_only_registered_losses():
    names = set(loss_names())
    assert SETTINGS.keys() <= names
    assert OWN_GRADIENT.keys() <= names


class FreshLoss(RankingLoss):
    """What a user may add: a margin between the means."""

    def list_losses(self, lists):
        pos = lists.pos[lists.pos_mask].mean() if lists.pos.numel() else 0
        return (1 + lists.scores[lists.is_negative].mean() - pos).relu()


class StrangeLoss(nn.Module):
    """Takes what no other loss takes."""

    def __init__(self, depth):
        super().__init__()

    def forward(self, depth_map, camera):
        return depth_map.sum()


@pytest.fixture
def register(monkeypatch):
    """Registers classes for the time of a test."""

    def register(*classes):
        MODELS.import_from_location()
        entries = dict(MODELS.module_dict)
        entries.update((x.__name__, x) for x in classes)
        monkeypatch.setattr(MODELS, '_module_dict', entries)

    return register


def test_a_new_loss_is_in_the_list(register):
    register(FreshLoss)
    assert 'FreshLoss' in loss_names()
    found = cases('FreshLoss')
    assert [str(x) for x in found] == ['FreshLoss-rows', 'FreshLoss-queries']
    value, gradients = found[0].batch().gradients(found[0].build())
    assert value > 0
    assert_finite(value, gradients)
    with pytest.raises(AssertionError, match='not close'):
        # It would be found out: half of the scores lose their gradient.
        assert_same((value, gradients), (value, [x.tril() for x in gradients]))


def test_a_loss_without_a_batch_says_what_to_add(register):
    register(StrangeLoss)
    assert cases('StrangeLoss') == []
    with pytest.raises(LookupError, match='depth.*Fix: add .* to SETTINGS'):
        build('StrangeLoss', {})
    loss = build('StrangeLoss', dict(depth=1))
    with pytest.raises(
        LookupError, match=r'StrangeLoss.forward\(depth_map, camera\). Fix: name its'
    ):
        kinds(loss)


@every_loss
def test_value_and_gradient(case):
    batch = case.batch()
    value, gradients = batch.gradients(case.build())
    assert value.dim() == 0
    assert_finite(value, gradients)
    assert all(x.any() for x in gradients)
    # The weight of the loss scales both.
    settings = dict(case.settings)
    settings['loss_weight'] = 2 * settings.get('loss_weight', 1.0)
    twice = batch.gradients(build(case.name, settings))
    assert_same(twice, (2 * value, [2 * x for x in gradients]))


@every_loss
def test_order_and_memory_layout_do_not_matter(case):
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    if case.settings.get('mode') == 'sogram':
        order = torch.arange(12)  # its batch is two samples in a row
    loss, other = case.build(), case.build()
    for seed in range(2):
        batch = case.batch(seed=seed)
        value, gradients = batch.gradients(loss)
        moved = batch.entries(order).gradients(other)
        assert_same(moved, (value, [x[order] for x in gradients]))
    for x, y in zip(loss.state_dict().values(), other.state_dict().values()):
        torch.testing.assert_close(x, y)
    batch = case.batch()
    value, gradients = batch.gradients(case.build())
    strided = batch.mapped(
        lambda x: torch.stack([x, x], -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 0]
    )
    assert_same(strided.gradients(case.build()), (value, gradients))


@every_loss
@pytest.mark.parametrize('size', [0, 1])
def test_nothing_to_compare(case, size):
    loss = case.build()
    batch = case.batch(size)
    try:
        assert_finite(*batch.gradients(loss))
    except ValueError as error:
        # A batch without pairs is a mistake, which the message names.
        if case.kind not in ('pairs', 'labelled') or not re.search(
            'at least|not empty', str(error)
        ):
            raise


@pytest.mark.parametrize(
    # A pair is always positive.
    'case',
    [x for x in CASES if x.kind != 'pairs'],
    ids=str,
)
def test_one_side_alone(case):
    """No positive, only one class, no other sample."""
    batch, loss = case.batch(CLASSES), case.build()
    if batch.kind == 'rows':
        *boxes, labels, idx = batch.fixed
        takes_background = getattr(loss, 'use_sigmoid', True)
        sides = [
            (*boxes, torch.full_like(labels, c), idx)
            for c in (0, CLASSES if takes_background else 1)
        ]
    else:
        (labels,) = batch.fixed
        same = torch.zeros_like(labels)
        sides = {
            'queries': [(same,), (torch.arange(CLASSES),)],
            'views': [(same,)],
            'labelled': [(same,), (~same,)],
        }[batch.kind]
    for fixed in sides:
        side = replace(batch, fixed=fixed)
        assert_finite(*side.gradients(case.build()))


def of_many_classes(value):
    """Settings for 300 classes and samples instead of a few."""
    if isinstance(value, dict):
        many = dict(num_classes=300, num_samples=300, class_counts=[5] * 300)
        return {k: many.get(k, of_many_classes(v)) for k, v in value.items()}
    return value


@pytest.mark.parametrize(
    'case',
    # One of the settings of each loss. The sorter of rows takes 80 scores.
    [
        x
        for x in {(x.name, x.kind): x for x in reversed(CASES)}.values()
        if x.kind != 'labelled' and (x.name, x.kind) != ('SoDeepLoss', 'rows')
    ],
    ids=str,
)
def test_small_integers_are_the_numbers_they_are(case):
    """300 classes in uint8 or int8 are 44, so that class 44 would be background."""
    case = replace(case, settings=of_many_classes(case.settings))
    batch = case.batch()
    if case.kind != 'pairs':
        *boxes, labels, idx = batch.fixed if case.kind == 'rows' else (*batch.fixed, batch.fixed[0])
        labels, idx = labels + 42, (idx + 42).clamp(max=127)
        batch = replace(batch, fixed=(*boxes, labels, idx)[: len(batch.fixed)])
    if case.kind == 'rows':
        scores, *rest = batch.leaves
        g = torch.Generator().manual_seed(1)
        scores = torch.randn(len(scores), 300, generator=g, dtype=scores.dtype)
        batch = replace(batch, leaves=(scores, *rest))
    expected = batch.gradients(case.build())
    assert expected[0] != 0
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        fixed = [x if x.is_floating_point() else x.to(dtype) for x in batch.fixed]
        found = replace(batch, fixed=tuple(fixed)).gradients(case.build())
        assert torch.equal(found[0], expected[0])
        assert all(map(torch.equal, found[1], expected[1]))


def test_small_integers_outside_the_losses():
    labels = torch.tensor([44, 43], dtype=torch.uint8)
    highest = torch.eye(300)[[44, 0]]
    assert StableAPLoss().get_accuracy(highest, labels)['acc_classes'] == 50
    counted = counted_scores(torch.zeros(2, 300, dtype=torch.bool), torch.arange(2), labels, None)
    assert counted.nonzero().tolist() == [[0, 44], [1, 43]]


class Weighted(nn.Module):
    """A loss with a weight for each score."""

    def __init__(self, loss, weight):
        super().__init__()
        self.loss, self.weight = loss, weight
        self.box_input = loss.box_input
        self.keeps_samples = getattr(loss, 'keeps_samples', False)

    def forward(self, scores, target, **more):
        return self.loss(scores, target, self.weight, **more)


@pytest.mark.parametrize(
    'case', [x for x in CASES if x.kind == 'rows' and isinstance(x.build(), RankingLoss)], ids=str
)
def test_ignored_scores_take_no_part(case):
    """As heads ask for classes that an image is not annotated for."""
    batch = case.batch()
    scores, *boxes = batch.leaves
    labels = batch.fixed[-2]
    g = torch.Generator().manual_seed(5)
    counted = torch.rand(scores.shape, generator=g) < 0.5
    rows = (labels < CLASSES).nonzero().squeeze(1)
    counted[rows, labels[rows]] = True
    assert not counted.all()
    value, gradients = batch.gradients(Weighted(case.build(), counted))
    assert value > 0
    assert not gradients[0][~counted].any()
    # So few scores need not change their ranks when they are perturbed.
    assert gradients[0].any() or case.name == 'BlackBoxAPLoss'
    noise = 3 * torch.randn(scores.shape, generator=g, dtype=scores.dtype)
    for values in (noise, torch.nan):
        moved = torch.where(counted, scores, values)
        other = replace(batch, leaves=(moved, *boxes))
        for weight in (counted, counted.float()):
            again = other.gradients(Weighted(case.build(), weight))
            assert_same(again, (value, gradients))


@every_loss
def test_ties(case):
    tied = case.batch().mapped(torch.ones_like)
    assert_finite(*tied.gradients(case.build()))


@every_loss
def test_nan_is_not_hidden(case):
    def broken(x):
        x = x.clone()
        x[0] = float('nan')
        return x

    batch = case.batch()
    if case.kind == 'rows':
        # A row with a class, which no loss leaves out.
        batch.fixed[-2][0] = 0
    assert batch.mapped(broken).of(case.build()).isnan()


@pytest.mark.parametrize(
    'case', [x for x in CASES if x.kind == 'rows' and x.name not in POINTWISE], ids=str
)
def test_infinite_scores_stay_finite(case):
    batch = case.batch()
    scores = batch.leaves[0]
    scores[0, 0], scores[1, 1], scores[2] = torch.inf, -torch.inf, torch.inf
    assert_finite(*batch.gradients(case.build()))


@every_loss
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(case, dtype):
    half = case.batch().mapped(lambda x: x.to(dtype))
    exact = half.mapped(torch.Tensor.double)
    with torch.autocast('cpu', dtype=dtype):
        value, gradients = half.gradients(case.build())
    assert value.dtype == torch.float32
    assert all(x.dtype == dtype for x in gradients)
    assert all(x.isfinite().all() for x in gradients)
    torch.testing.assert_close(value.double(), exact.of(case.build()), rtol=1e-3, atol=1e-3)


@every_loss
def test_float16_under_autocast_to_bfloat16(case):
    half = case.batch().mapped(torch.Tensor.half)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        value = half.of(case.build())
    assert torch.equal(value, half.of(case.build()))


@pytest.mark.parametrize(
    'case',
    # The weights of negatives by their hardness are constants.
    [x for x in CASES if x.name not in OWN_GRADIENT and 'hardness_strength' not in x.settings],
    ids=str,
)
def test_gradient_is_the_derivative(case):
    batch, loss = case.batch(4, 1), case.build()

    def value(*leaves):
        return replace(batch, leaves=leaves).of(copy.deepcopy(loss))

    leaves = [x.requires_grad_() for x in batch.leaves]
    assert torch.autograd.gradcheck(value, leaves, fast_mode=True)


def trained(case):
    """A loss with two batches behind it."""
    loss = case.build()
    for seed in range(2):
        case.batch(seed=seed).of(loss)
    return loss


@every_loss
def test_saved_copied_and_pickled(case):
    loss = trained(case)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    loaded = case.build()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    others = [loaded, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))]
    # One of them takes a step, which the others do not see.
    batch = case.batch(seed=2)
    expected = batch.gradients(loss)
    for other in others:
        value, gradients = batch.gradients(other)
        assert torch.equal(value, expected[0])
        assert all(map(torch.equal, gradients, expected[1]))
        for x, y in zip(other.state_dict().values(), loss.state_dict().values()):
            assert torch.equal(x, y)


@every_loss
def test_to_another_dtype(case):
    """A model in half precision or float64 has its losses with it."""
    for dtype in (torch.float64, torch.bfloat16):
        loss = trained(case).to(dtype)
        batch = case.batch(seed=2)
        assert_finite(*batch.gradients(loss))
    if torch.cuda.is_available():
        loss = trained(case).cuda()
        batch = case.batch(seed=2).mapped(lambda x: x.cuda())
        batch = replace(batch, fixed=tuple(x.cuda() for x in batch.fixed))
        assert_finite(*batch.gradients(loss))
