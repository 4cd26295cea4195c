"""What users type first, also of other libraries: each call is right, or refused with the fix."""

import re
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace

import pytest
import torch
from subjects import Case, cases, made_up
from torch.nn.functional import cross_entropy, normalize

import mmrank
import mmrank.functional as F
from mmrank import APLoss, EmbeddingLoss, SmoothAPLoss, StableAPLoss, losses
from mmrank.errors import UserError
from mmrank.functional import unit_rows
from mmrank.losses import EmbeddingBatch, RankingLoss, SOPRCLoss, SumLoss
from mmrank.losses.groups import _group_index


def test_losses_are_names_of_the_package():
    assert mmrank.StableAPLoss is StableAPLoss
    with pytest.raises(AttributeError, match='NoSuchLoss'):
        mmrank.NoSuchLoss()
    with pytest.raises(AttributeError, match="'mmrank' has no attribute 'Dataset'"):
        mmrank.Dataset()
    with pytest.raises(ImportError, match="did you mean 'StableAPLoss'"):
        from mmrank import StableApLoss  # noqa: F401
    with pytest.raises(ImportError, match="did you mean 'SmoothAPLoss'"):
        from mmrank.losses import SmoothApLoss  # noqa: F401
    for name, instead in {
        'SupConLoss': "mmrank.PMLLoss('SupConLoss')",
        'FastAPLoss': "mmrank.PMLLoss('FastAPLoss')",
        'TripletMarginLoss': "mmrank.PMLLoss('TripletMarginLoss')",
        'RetrievalMetric': 'from mmrank.evaluation import RetrievalMetric',
        'average_precision': 'from mmrank.functional import average_precision',
    }.items():
        with pytest.raises(ImportError, match=re.escape(f'Fix: {instead}')):
            getattr(mmrank, name)
    assert {'StableAPLoss', '__version__'} <= {*dir(mmrank)}
    code = "import mmrank, sys; assert 'torch' not in sys.modules; from mmrank import StableAPLoss"
    subprocess.run([sys.executable, '-c', code], check=True)


def of_lists():
    """The losses of lists, each with its settings but for those of columns."""
    for case in [*cases(), Case('SOPRCLoss', dict(lam1=1.0, lam2=5.0, use_vector=False), 'rows')]:
        is_ranking = case.kind == 'rows' and isinstance(case.details, RankingLoss)
        # They take columns, the box losses of a batch, or the numbers of samples.
        if not is_ranking or case.name in ('MAUCLoss', 'ALRPLoss', 'SOAPLoss'):
            continue
        of_columns = ('mode', 'num_classes')
        settings = {k: v for k, v in case.settings.items() if k not in of_columns}
        yield replace(case, settings=settings)


LISTS = {str(case): case for case in of_lists()}


@pytest.mark.parametrize('name', LISTS)
def test_groups_of_unlike_sizes_are_split_by_size(name, monkeypatch):
    """Values, gradients, state and diagnostics are those of one padded matrix."""
    sizes = torch.tensor([1, 30, 2, 1, 3, 7, 1, 4, 1])
    group = torch.arange(len(sizes)).repeat_interleave(sizes)
    group = group[torch.randperm(len(group), generator=torch.Generator().manual_seed(3))]
    labels = torch.arange(len(group)) % 3 == 0
    results = []
    for shared in (0, 2**16):
        monkeypatch.setattr('mmrank.losses.groups._SHARED_ENTRIES', shared)
        assert len(_group_index(group)) == (1 if shared else 5)
        loss, leaf = LISTS[name].build(), made_up(len(group)).double().requires_grad_()
        boxes = {}
        if loss.box_input is not None:
            boxes = {'quality': torch.linspace(0.2, 1, int(labels.sum()))}
        value = loss(leaf, labels, group=group, **boxes)
        (slope,) = torch.autograd.grad(value, leaf)
        results.append([value, slope, *loss.state_dict().values(), *loss.diagnostics.values()])
    no_boxes = {key: x[:0] for key, x in boxes.items()}
    assert LISTS[name].build()(leaf[:0], labels[:0], group=group[:0], **no_boxes) == 0
    assert results[0][1].abs().sum() > 0
    torch.testing.assert_close(*results)


@pytest.mark.parametrize('loss', [StableAPLoss(), StableAPLoss(tau='auto'), APLoss(), SOPRCLoss()])
def test_one_long_group_and_many_short_ones_take_little_memory(loss):
    n = 4000
    group = torch.arange(2 * n).sub(n).clamp(min=0)
    scores = made_up(2 * n).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        loss(scores, torch.arange(2 * n) % 8 == 0, group=group).backward()
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest < 8e6, 'a matrix of 4,000 x 4,000 has 16 MB in a byte an entry'


COSINES = dict(tau=0.3, score_range=(-1, 1), score_penalty=0.0)


def rows(n=24):
    return made_up(n, 6).double(), torch.arange(n) % 5


def test_settings_for_cosines_yield_to_those_given():
    sets = [{}, dict(tau=0.2), dict(score_range=(-2, 2)), dict(score_penalty=0.5)]
    for given in sets:
        # Alone, and as a part of a sum.
        for loss in (StableAPLoss(**given), SumLoss([StableAPLoss(**given)])):
            explicit = StableAPLoss(**{**COSINES, **given})
            x, labels = rows()
            for _ in range(2):  # the second has a state
                value = EmbeddingLoss(loss)(x, labels)
                assert torch.equal(value, EmbeddingLoss(explicit)(x, labels))
    logits, explicit = (
        StableAPLoss(),
        StableAPLoss(tau=1.0, score_range=(-5, 5), score_penalty=1e-3),
    )
    assert torch.equal(logits(x, labels), explicit(x, labels))


def test_miners_and_memory_of_pytorch_metric_learning():
    pml = pytest.importorskip('pytorch_metric_learning')
    from pytorch_metric_learning import losses, miners

    assert pml.__version__
    x, labels = rows()
    unit = unit_rows(x)
    for miner in (miners.MultiSimilarityMiner(), miners.TripletMarginMiner(margin=0.5)):
        mined = miner(x, labels)
        anchors, negatives = mined[-2 if len(mined) == 4 else 0], mined[-1]
        left_out = torch.ones(24, 24, dtype=torch.bool)
        left_out[mined[0], mined[1]] = left_out[anchors, negatives] = False
        expected = SmoothAPLoss().embedding_loss(
            EmbeddingBatch(unit, labels, unit, labels, left_out)
        )
        loss = EmbeddingLoss(SmoothAPLoss())
        assert torch.equal(loss(x, labels, mined), expected)
        assert expected != loss(x, labels)

    class Memory(losses.CrossBatchMemory):
        supported_losses = staticmethod(lambda: ['EmbeddingLoss'])

    memory = Memory(EmbeddingLoss(SmoothAPLoss()), 6, 48).double()
    first = x.flip(0)
    memory(first, labels)
    leaf = x.clone().requires_grad_()
    value = memory(leaf, labels)
    itself = torch.eye(48, dtype=torch.bool)[24:]
    gallery = unit_rows(torch.cat([first, x]))
    expected = SmoothAPLoss().embedding_loss(
        EmbeddingBatch(unit, labels, gallery, labels.repeat(2), itself)
    )
    torch.testing.assert_close(value, expected)
    assert torch.autograd.grad(value, leaf)[0].any()


COUNTED = dict(class_counts=[5, 3, 1])
UNIT = normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(0)))
CLASSES = torch.arange(12) % 4


def scores_of_classes(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=g), torch.tensor([0, 1, 0, 2, 0, 1, 1, 2])


def test_maps_and_qualities_of_all_rows():
    maps = torch.rand(2, 3, 4, 4)
    labels = torch.randint(3, (2, 4, 4))
    flat = maps.movedim(1, -1).flatten(0, -2), labels.flatten()
    assert losses.StableAPLoss()(*flat).isfinite()
    scores, labels = scores_of_classes()
    labels = torch.where(labels == 2, 3, labels)
    quality = torch.rand(8)
    expected = losses.GradedAPLoss()(scores, labels, quality=quality[labels < 3])
    assert torch.equal(losses.GradedAPLoss()(scores, labels, quality=quality), expected)


@pytest.mark.parametrize(
    ('loss', 'batch', 'message'),
    [
        (losses.StableAPLoss(), (UNIT, CLASSES), r'mmrank.EmbeddingLoss\(StableAPLoss\(\)\)'),
        (losses.SmoothAPLoss(), (UNIT.abs(), CLASSES), r'EmbeddingLoss\(SmoothAPLoss\(\)\)'),
        (losses.StableAPLoss(), (UNIT.sigmoid(), CLASSES), 'takes logits'),
        (losses.APLoss(), (UNIT.softmax(1), CLASSES), 'takes logits'),
        (losses.AsymmetricLoss(8), (UNIT.sigmoid(), CLASSES), 'takes logits'),
        (losses.InfoNCELoss(), (UNIT, UNIT, CLASSES), 'have 4 different .* go into labels='),
        (losses.DRLoss(), (2 * UNIT[:, :4], CLASSES + 1), 'none is 0; 4 is the background'),
    ],
)
def test_the_first_batch_is_looked_at_once(loss, batch, message):
    with pytest.warns(UserWarning, match=message):
        loss(*batch)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        loss(*batch)


def test_usual_batches_give_no_warning():
    onehot = torch.nn.functional.one_hot(CLASSES, 8)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        losses.StableAPLoss()(2 * UNIT, CLASSES)
        losses.SmoothAPLoss()(UNIT.sigmoid(), CLASSES)
        losses.StableAPLoss(tau=0.1, score_range=(0, 1))(UNIT.sigmoid(), CLASSES)
        losses.StableAPLoss()(UNIT, CLASSES, avg_factor=12)
        losses.SmoothAPLoss()(UNIT, onehot)
        losses.EmbeddingLoss(losses.StableAPLoss())(UNIT, CLASSES)
        losses.InfoNCELoss()(UNIT, UNIT, torch.arange(12))
        # Absent rows have the index 0.
        losses.InfoNCELoss()(UNIT, UNIT, torch.arange(12), weight=(CLASSES == 0).float())


@pytest.mark.parametrize(
    'counts', [[50, 30, 20], Counter({0: 50, 1: 30, 2: 20}), torch.tensor([50, 30, 20])]
)
def test_class_indices_are_of_a_softmax(counts):
    scores, labels = scores_of_classes()
    shift = torch.tensor([0.5, 0.3, 0.2]).log()
    expected = cross_entropy(scores + shift, labels)
    loss = losses.LogitAdjustedCELoss(counts)
    torch.testing.assert_close(loss(scores, labels), expected)
    # 0 and 1 of each class are of sigmoids.
    onehot = torch.nn.functional.one_hot(labels, 3)
    by_sigmoid = losses.LogitAdjustedCELoss(counts, use_sigmoid=True)
    assert torch.equal(loss(scores, onehot), by_sigmoid(scores, labels))
    # The counts say how many classes there are, also those that come later; one is binary.
    later = losses.LogitAdjustedCELoss()
    later.set_class_counts(counts)
    assert later.num_columns == loss.num_columns == 3
    assert torch.equal(later(scores, labels), loss(scores, labels))
    one = losses.LogitAdjustedCELoss([30], num_samples=100)
    first = (labels == 0).long()
    assert torch.equal(one(scores[:, :1], 1 - first), one(scores[:, :1], first[:, None]))
    plain = losses.AsymmetricLoss()
    assert torch.equal(plain(scores, labels), losses.AsymmetricLoss(3)(scores, labels))


OF_TARGETS = {
    'ap_loss': F.ap_loss,
    'dr_loss': F.dr_loss,
    'rank_sort_loss': lambda *x, **mask: F.rank_sort_loss(*x, **mask)[0],
    'alrp_loss': lambda s, t, **mask: F.alrp_loss(s, t, s * 0, **mask)[0],
}


@pytest.mark.parametrize('name', OF_TARGETS)
def test_minus_one_is_left_out_by_the_mask_alone(name):
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6])
    labels = torch.tensor([0.0, 1, 1, -1])
    function = OF_TARGETS[name]
    with pytest.raises(UserError, match=r'targets > 0 if .*mask=\(targets >= 0\)'):
        function(scores, labels)
    found = function(scores, labels, mask=labels >= 0)
    assert torch.equal(found, function(scores[:3], labels[:3]))
    assert found > 0
    with pytest.raises(UserError, match=r'targets must be in \[0, 1\]'):
        function(scores, 3 * scores)


@pytest.mark.parametrize('function', [F.smooth_ap_loss, F.ap_loss])
@pytest.mark.parametrize('worst', [-1.0, torch.nan])
def test_a_relevance_below_zero_is_refused(function, worst):
    scores = torch.tensor([0.9, 0.8, 0.7])
    relevance = torch.tensor([worst, 1.0, 0.5])
    with pytest.raises(UserError, match='relevance must be >= 0 at the positives|relevance is NaN'):
        function(scores, torch.tensor([1, 0, 1]), relevance=relevance)
    function(scores, torch.tensor([0, 1, 1]), relevance=relevance)


@pytest.mark.parametrize(
    'loss', [losses.SmoothAPLoss(tau=0.1), losses.NDCGLoss(tau=0.1), losses.RecallAtKLoss(tau=0.1)]
)
def test_backward_inside_autocast(loss):
    scores, labels = scores_of_classes()
    scores.requires_grad_()
    loss(scores, labels).backward()
    expected = scores.grad.clone()
    scores.grad = None
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss(scores, labels).backward()
    torch.testing.assert_close(scores.grad, expected, rtol=1e-6, atol=1e-9)


def test_reweighting_keeps_its_dtype():
    loss = losses.LDAMLoss(**COUNTED).half()
    assert loss.reweighting.dtype == torch.long
    loss.load_state_dict({'reweighting': torch.ones(())})
    assert loss.reweighting == 1


def test_every_fix_of_other_libraries_is_named():
    from mmrank.settings import ELSEWHERE

    for name in ELSEWHERE:
        with pytest.raises(UserError, match=re.escape(f'does not take {name}. Fix: ')):
            losses.CLIPLoss(**{name: 1})
