"""Labels in contrastive losses, against the formulas of SupCon, UniCL and others, written out."""

import pytest
import torch
from gloo_processes import run_on_ranks
from subjects import share
from torch import nn
from torch.nn.functional import logsigmoid, normalize

from mmrank.losses import (
    CLIPLoss,
    EmbeddingLoss,
    FlatCLRLoss,
    InBatchSoftmaxLoss,
    InfoNCELoss,
    ISogCLRLoss,
    SigLIPLoss,
    SogCLRLoss,
)

TAU = 0.3
N = 14
LABELS = torch.tensor([0, 1, 2, 0, 1, 1, 3, -1, 0, -1, 2, 1, 4, 0])
#: Those without a label have a label each.
CLASSES = torch.where(LABELS < 0, 100 + torch.arange(N), LABELS)
SIZES = (9, 5)


def views(count=2, dtype=torch.float64):
    g = torch.Generator().manual_seed(3)
    return [torch.randn(N, 6, generator=g).to(dtype).requires_grad_() for _ in range(count)]


def unit(rows):
    return [normalize(x, dim=1) for x in rows]


def mean_of(values, chosen):
    return (values * chosen).sum(1) / chosen.sum(1)


def supcon(*given, classes=CLASSES, positives_compared=True):
    """The mean over the positives outside of the logarithm."""
    rows = torch.cat(unit(given))
    classes = classes.repeat(len(given))
    itself = torch.eye(len(rows), dtype=torch.bool)
    same = classes[:, None] == classes
    positive = same & ~itself
    logits = rows @ rows.t() / TAU
    compared = ~itself if positives_compared else ~same
    total = logits.masked_fill(~compared, -torch.inf).logsumexp(1)
    counted = positive.any(1)
    return (total - mean_of(logits, positive))[counted].mean()


def cross_entropy(logits):
    """With the share 1 / k of each of the k columns of the row's class."""
    return -mean_of(logits.log_softmax(1), CLASSES[:, None] == CLASSES).mean()


def unicl(images, texts):
    images, texts = unit([images, texts])
    logits = images @ texts.t() / TAU
    return (cross_entropy(logits) + cross_entropy(logits.t())) / 2


def siglip(images, texts):
    images, texts = unit([images, texts])
    sign = torch.where(CLASSES[:, None] == CLASSES, 1, -1)
    return -logsigmoid(sign * (images @ texts.t() / TAU - 10)).sum(1).mean()


def sogclr(*given):
    """Averages over true negatives, of all rows of a batch that is the first of each sample."""
    rows = torch.cat(unit(given))
    classes = CLASSES.repeat(len(given))
    same = classes[:, None] == classes
    scores = rows @ rows.t()
    negatives = (scores / TAU).masked_fill(same, -torch.inf).logsumexp(1)
    positive = same & ~torch.eye(len(rows), dtype=torch.bool)
    return (TAU * (negatives - (~same).sum(1).log()) - mean_of(scores, positive)).mean()


def bimodal_sogclr(images, texts):
    images, texts = unit([images, texts])
    scores = images @ texts.t()
    same = CLASSES[:, None] == CLASSES
    losses = 0
    for s in (scores, scores.t()):
        negatives = (s / TAU).masked_fill(same, -torch.inf).logsumexp(1)
        losses = losses + TAU * (negatives - (~same).sum(1).log()) - mean_of(s, same)
    return losses.mean()


def in_batch(left, right):
    return cross_entropy(left @ right.t() / TAU)


def index():
    return torch.arange(N)


class Pairs(nn.Module):
    """The in-batch softmax with the call of a contrastive loss."""

    def __init__(self):
        super().__init__()
        self.loss = InBatchSoftmaxLoss(TAU, frequency='none')

    def forward(self, left, right, sample_idx, **options):
        return self.loss(left, right, sample_idx, sample_idx, **options)


CASES = {
    'supcon': (lambda: InfoNCELoss(TAU), supcon),
    'negatives alone': (lambda: FlatCLRLoss(TAU), lambda *x: supcon(*x, positives_compared=False)),
    'unicl': (lambda: CLIPLoss(TAU, learnable=False), unicl),
    'bimodal': (lambda: InfoNCELoss(TAU, bimodal=True), unicl),
    'siglip': (lambda: SigLIPLoss(TAU, learnable=False), siglip),
    'sogclr': (lambda: SogCLRLoss(N, TAU), sogclr),
    'bimodal sogclr': (lambda: SogCLRLoss(N, TAU, bimodal=True), bimodal_sogclr),
    'in batch': (Pairs, in_batch),
}
every_case = pytest.mark.parametrize('case', CASES)


@every_case
def test_equal_to_the_formula(case):
    build, formula = CASES[case]
    inputs = views()
    found = build()(*inputs, index(), labels=LABELS)
    expected = formula(*inputs)
    # The averages of SogCLR are float32.
    close = dict(rtol=1e-6, atol=1e-8) if 'sogclr' in case else dict(rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, expected, **close)
    grads = [torch.autograd.grad(x, inputs) for x in (found, expected)]
    torch.testing.assert_close(*grads, **close)


@every_case
def test_weights_are_copies(case):
    build, _ = CASES[case]
    inputs = views()
    times = torch.tensor([2, 1, 0, 3, 1, 1, 2, 2, 1, 0, 1, 1, 0, 1])
    copies = index().repeat_interleave(times)
    expected = build()(*(x[copies] for x in inputs), copies, labels=LABELS[copies])
    labels = torch.where(times > 0, LABELS, torch.nan)  # what is absent may be anything
    found = build()(*inputs, index(), labels=labels, weight=times.double())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize('count', [2, 3, 4])
@pytest.mark.parametrize(('build', 'formula'), [CASES[x] for x in ('supcon', 'sogclr')])
def test_several_views(count, build, formula):
    inputs = views(count)
    for given in (inputs, torch.stack(inputs)):
        found = build()(given, sample_idx=index(), labels=LABELS)
        torch.testing.assert_close(found, formula(*inputs), rtol=1e-6, atol=1e-8)


def test_views_without_labels_are_positives_of_each_other():
    inputs = views(3)
    expected = supcon(*inputs, classes=index())
    torch.testing.assert_close(InfoNCELoss(TAU)(inputs), expected)


def test_temperatures_learn_with_labels():
    """``sum_z softmax(z) h(z)`` with h relative to the mean positive, by differences."""
    state = ISogCLRLoss(N, tau_init=0.5, eta=0.1, beta1=1.0).double()
    state(*views(), index(), labels=LABELS)
    moved = 0.5 - state.temperature.tau

    def values(tau):
        rows = torch.cat(unit(views()))
        same = CLASSES.repeat(2)[:, None] == CLASSES.repeat(2)
        scores = rows @ rows.t()
        h = scores - mean_of(scores, same & ~torch.eye(2 * N, dtype=torch.bool))[:, None]
        log_mean = (h / tau).masked_fill(same, -torch.inf).logsumexp(1) - (~same).sum(1).log()
        return (tau * (log_mean + state.rho)).view(2, N).mean(0)

    slope = (values(0.5 + 1e-5) - values(0.5 - 1e-5)) / 2e-5
    torch.testing.assert_close(moved.double(), 0.1 * slope, rtol=1e-4, atol=1e-6)


def test_embeddings_without_a_positive_are_left_out():
    (rows,) = views(1)
    loss = EmbeddingLoss(InfoNCELoss(TAU))
    assert loss(rows, index()).item() == 0
    assert loss(rows[:1], index()[:1]).item() == 0
    loss(rows, index()).backward()
    assert rows.grad.eq(0).all()


def results(part, labels):
    """Values and gradients of the losses of some rows, and of embeddings with classes."""
    found = []
    for build, _ in CASES.values():
        inputs = views()
        loss = build()(*(x[part] for x in inputs), index()[part], labels=labels)
        found += [loss.detach(), *torch.autograd.grad(loss, inputs)]
    (rows,) = views(1)
    loss = EmbeddingLoss(InfoNCELoss(TAU))(rows[part], (CLASSES % 4)[part])
    return [*found, loss.detach(), *torch.autograd.grad(loss, [rows])]


def on_rank(rank):
    part = share(SIZES, rank)
    return results(part, LABELS[part]) + results(part, None if rank else LABELS[part])


@pytest.mark.processes
def test_ranks_are_a_single_process():
    """Of unlike numbers of rows; without labels on one rank its rows have none."""
    ranks = run_on_ranks(on_rank, 2)
    some = LABELS.clone()
    some[SIZES[0] :] = -1
    expected = results(slice(None), LABELS) + results(slice(None), some)
    for want, *found in zip(expected, *ranks):
        if want.dim():
            # What DistributedDataParallel averages.
            found = [sum(found) / len(found)]
        for one in found:
            torch.testing.assert_close(one, want, rtol=1e-6, atol=1e-8)
