"""What a new user types first: each call is right, or refused with the fix."""

import subprocess
import sys

import pytest
import torch

import mmrank
from mmrank import APLoss, SmoothAPLoss, StableAPLoss
from mmrank.errors import UserError
from mmrank.losses import AUCLoss, SOAPLoss

LOSSES = [StableAPLoss, SmoothAPLoss, APLoss, AUCLoss]


def made_up(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_losses_are_names_of_the_package():
    assert mmrank.StableAPLoss is StableAPLoss
    with pytest.raises(AttributeError, match='NoSuchLoss'):
        mmrank.NoSuchLoss()
    with pytest.raises(AttributeError, match="'mmrank' has no attribute 'Dataset'"):
        mmrank.Dataset()
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


@pytest.mark.parametrize(
    ('scores', 'labels', 'message'),
    [
        # Class 0 would be the positive here, and 1 the background.
        (made_up(8, 1), torch.arange(8) % 2, r'Fix: loss\(cls_score\[:, 0\], .* avg_factor=1\)'),
        (made_up(8, 1), torch.arange(8) > 3, r'Fix: loss\(cls_score\[:, 0\], .* avg_factor=1\)'),
        (made_up(8), torch.arange(8), 'numbers from 0 to 7. Fix: target > 0'),
        (made_up(8), torch.zeros(8, 1), 'Fix: labels of that shape'),
        (made_up(8, 3), torch.zeros(8), r'Fix: loss\(cls_score, target.long\(\)\)'),
        # Embeddings and classes, as pytorch-metric-learning takes them.
        (made_up(8, 3), torch.arange(8), r'mmrank.EmbeddingLoss\(loss\)\(embeddings, classes\)'),
    ],
)
def test_ambiguous_calls_are_refused(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        SmoothAPLoss()(scores, labels)


@pytest.mark.parametrize('kind', LOSSES)
def test_lists_of_groups(kind):
    """As learning to rank has them: each query with documents of its own."""
    sizes = [5, 1, 9]
    group = torch.tensor([7, 3, 4]).repeat_interleave(torch.tensor(sizes))
    scores, labels = made_up(15).double(), (torch.arange(15) % 3 == 0).long()
    order = torch.randperm(15, generator=torch.Generator().manual_seed(2))
    leaf = scores[order].requires_grad_()
    settings = dict(rho=1.0, mean_mode='off', score_penalty=0.0) if kind is StableAPLoss else {}
    loss = kind(reduction='sum', **settings)
    value = loss(leaf, labels[order], group=group[order])
    (slope,) = torch.autograd.grad(value, leaf)
    assert value > 0
    assert slope.isfinite().all()
    if kind is not StableAPLoss:  # whose lists share one mean positive score
        parts = zip(scores.split(sizes), labels.split(sizes))
        expected = sum(kind()(s, y) for s, y in parts)
        torch.testing.assert_close(value, expected)
    with pytest.raises(ValueError, match=r'Fix: of padded \(lists, N\) scores'):
        loss(made_up(3, 5), torch.ones(3, 5), group=torch.zeros(3))
    empty = torch.zeros(0, requires_grad=True)
    assert loss(empty, torch.zeros(0), group=torch.zeros(0, dtype=torch.long)) == 0


def test_groups_of_other_processes_are_refused(monkeypatch):
    monkeypatch.setattr('mmrank.losses.ranking.base.world_group', object)
    with pytest.raises(UserError, match=r"Fix: SmoothAPLoss\(scope='local'\)"):
        SmoothAPLoss()(made_up(4), torch.ones(4), group=torch.zeros(4))
