"""What a new user types first: each call is right, or refused with the fix."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from random_batches import made_up

import mmrank
from mmrank import APLoss, EmbeddingLoss, SmoothAPLoss, StableAPLoss
from mmrank.functional import unit_rows
from mmrank.losses import (
    AUCLoss,
    AUCMLoss,
    BlackBoxAPLoss,
    DRLoss,
    EmbeddingBatch,
    LambdaLoss,
    ListNetLoss,
    ListwiseAPLoss,
    NDCGLoss,
    RankSortLoss,
    RecallAtKLoss,
    ROADMAPLoss,
    SOAPLoss,
    SOPRCLoss,
    SumLoss,
)
from mmrank.losses.groups import _group_index

LOSSES = [StableAPLoss, SmoothAPLoss, APLoss, AUCLoss]


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
    assert {'StableAPLoss', '__version__'} <= {*dir(mmrank)}
    code = "import mmrank, sys; assert 'torch' not in sys.modules; from mmrank import StableAPLoss"
    subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.parametrize('kind', LOSSES)
def test_one_score_a_sample(kind):
    """The shapes of ``BCEWithLogitsLoss`` and torchmetrics."""
    scores, labels = made_up(40), made_up(40, seed=1) > 0.5
    expected = kind()(scores[:, None], labels[:, None])
    for given in (labels, labels.long(), labels.float()):
        assert torch.equal(kind()(scores, given), expected)
    weight = torch.arange(40) < 30
    assert torch.equal(kind()(scores, labels, weight), kind()(scores[:30], labels[:30]))
    soap = [SOAPLoss(num_samples=40) for _ in range(2)]
    index = torch.arange(40)
    column = soap[0](scores[:, None], labels[:, None], sample_idx=index)
    assert torch.equal(soap[1](scores, labels, sample_idx=index), column)


@pytest.mark.parametrize('kind', LOSSES)
def test_lists_of_groups(kind):
    """As learning to rank has them: each query with documents of its own."""
    sizes = [5, 1, 9]
    group = torch.tensor([7, 3, 4]).repeat_interleave(torch.tensor(sizes))
    scores, labels = made_up(15).double(), (torch.arange(15) % 3 == 0).long()
    order = torch.randperm(15, generator=torch.Generator().manual_seed(2))
    leaf = scores[order].requires_grad_()
    settings = dict(rho=1.0, mean_mode='off', score_penalty=0.0) if kind is StableAPLoss else {}
    loss = kind(**settings)
    value = loss(leaf, labels[order], group=group[order])
    (slope,) = torch.autograd.grad(value, leaf)
    assert value > 0
    assert slope.isfinite().all()
    if kind is not StableAPLoss:  # whose lists share one mean positive score
        parts = zip(scores.split(sizes), labels.split(sizes))
        expected = sum(kind()(s, y) for s, y in parts) / 2  # one list has no positive
        torch.testing.assert_close(value, expected)
    empty = torch.zeros(0, requires_grad=True)
    assert loss(empty, torch.zeros(0), group=torch.zeros(0, dtype=torch.long)) == 0


#: Losses of lists of unlike lengths; ``mean_mode`` off: the mean of the batch.
BY_GROUP = {
    'SmoothAP': SmoothAPLoss,
    'AP': APLoss,
    'Rank & Sort': RankSortLoss,
    'DR': DRLoss,
    'AUC': AUCLoss,
    'list-wise AP': ListwiseAPLoss,
    'BlackBox AP': BlackBoxAPLoss,
    'recall': partial(RecallAtKLoss, mixup=False),
    'stable AP': StableAPLoss,
    'graded stable AP': partial(StableAPLoss, quality=0.9),
    'stable AP, auto': partial(StableAPLoss, tau='auto'),
    'ROADMAP': ROADMAPLoss,
    'AUCM': AUCMLoss,
    'NDCG': NDCGLoss,
    'LambdaLoss': LambdaLoss,
    'ListNet': ListNetLoss,
    'SOPRC': SOPRCLoss,
    'SOPRC, batch': partial(SOPRCLoss, lam1=1.0, lam2=5.0, semi_variance='batch'),
    'SOPRC, list': partial(SOPRCLoss, lam1=1.0, lam2=5.0, use_vector=False),
}


@pytest.mark.parametrize('name', BY_GROUP)
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
        loss, leaf = BY_GROUP[name](), made_up(len(group)).double().requires_grad_()
        boxes = {}
        if loss.box_input is not None:
            boxes = {'quality': torch.linspace(0.2, 1, int(labels.sum()))}
        value = loss(leaf, labels, group=group, **boxes)
        (slope,) = torch.autograd.grad(value, leaf)
        results.append([value, slope, *loss.state_dict().values(), *loss.diagnostics.values()])
    assert results[0][1].abs().sum() > 0
    torch.testing.assert_close(*results)


@pytest.mark.parametrize('name', ['stable AP', 'stable AP, auto', 'AP', 'SOPRC'])
def test_one_long_group_and_many_short_ones_take_little_memory(name):
    n = 4000
    group = torch.arange(2 * n).sub(n).clamp(min=0)
    scores = made_up(2 * n).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        BY_GROUP[name]()(scores, torch.arange(2 * n) % 8 == 0, group=group).backward()
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest < 8e6, 'a matrix of 4,000 x 4,000 has 16 MB in a byte an entry'


RANKINGS = [*LOSSES, BlackBoxAPLoss, ListwiseAPLoss, SOPRCLoss]
COSINES = dict(tau=0.3, score_range=(-1, 1), score_penalty=0.0)


def rows(n=24):
    return made_up(n, 6).double(), torch.arange(n) % 5


@pytest.mark.parametrize('kind', RANKINGS)
def test_embeddings_search_each_other(kind):
    x, labels = rows()
    own = x.clone().requires_grad_()
    settings = COSINES if kind is StableAPLoss else {}
    batch = EmbeddingBatch.of_one_batch(unit_rows(own), labels)
    expected = kind(**settings).embedding_loss(batch)
    (slope,) = torch.autograd.grad(expected, own)
    # Of any length, and against a gallery that is the same rows.
    for more in ({}, dict(ref_embeddings=own, ref_labels=labels)):
        value = EmbeddingLoss(kind())(own, labels, **more)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(torch.autograd.grad(value, own)[0], slope)
    assert slope.any()
    half = EmbeddingLoss(kind())(x.to(torch.bfloat16), labels)
    assert half.dtype == torch.float32


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
