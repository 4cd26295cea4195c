"""Partial AUC with state of each positive against the algorithms of its paper, step by step."""

import pytest
import torch

from mmrank.losses import PartialAUCLoss

CLASSES, SAMPLES = 2, 30
FORMS = {
    'SOPA': dict(max_fpr=0.3, eta=0.05),
    'SOPA-s': dict(lam=0.4, gamma=0.3),
    'SOTA-s': dict(lam=0.4, lam_pos=1.1, gamma=0.3),
}


def batch(seed, n=14):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, CLASSES, generator=g, dtype=torch.float64)
    target = (torch.rand(n, CLASSES, generator=g) < 0.4).long()
    return scores, target, torch.randperm(SAMPLES, generator=g)[:n]


class Algorithm:
    """Zhu et al. (2022), algorithms 1 to 3, one class after another, without a logarithm."""

    def __init__(self, margin=1.0, lam=1.0, lam_pos=None, max_fpr=None, eta=None, gamma=None):
        self.margin, self.lam, self.lam_pos = margin, lam, lam_pos
        self.max_fpr, self.eta, self.gamma = max_fpr, eta, gamma
        self.u, self.w = {}, {}

    def moved(self, old, new):
        return new if old is None else (1 - self.gamma) * old + self.gamma * new

    def of_class(self, c, scores, target, ids):
        pos, neg, keys = scores[target > 0], scores[target == 0], ids[target > 0].tolist()
        losses = (1 - (pos[:, None] - neg) / self.margin).clamp(min=0) ** 2
        weights, powers = [], []
        for row, i in zip(losses.detach(), keys):
            if self.max_fpr is not None:
                s = self.u.get((c, i), torch.tensor(0.0))
                above = (row > s).double()
                self.u[c, i] = s - self.eta * (1 - above.mean() / self.max_fpr)
                weights.append(above / self.max_fpr)
                continue
            u = self.u[c, i] = self.moved(self.u.get((c, i)), (row / self.lam).exp().mean())
            weights.append((row / self.lam).exp() / u)
            powers.append(u ** (self.lam / (self.lam_pos or self.lam)))
        weights = torch.stack(weights)
        if self.lam_pos is not None:
            powers = torch.stack(powers)
            self.w[c] = self.moved(self.w.get(c), powers.mean())
            weights = weights * (powers / self.w[c])[:, None]
        return (weights * losses).mean()

    def __call__(self, scores, target, ids):
        of_classes = [self.of_class(c, scores[:, c], target[:, c], ids) for c in range(CLASSES)]
        return torch.stack(of_classes).mean()


@pytest.mark.parametrize(('margin', 'shift'), [(1.0, 0.0), (0.6, 1e7)])
@pytest.mark.parametrize('form', FORMS)
def test_equals_the_algorithm(form, margin, shift):
    """Also where squares of the scores would have lost all digits."""
    loss = PartialAUCLoss(SAMPLES, CLASSES, margin=margin, **FORMS[form])
    algorithm = Algorithm(margin, **FORMS[form])
    for seed in range(6):
        scores, *rest = batch(seed)
        mine, theirs = ((scores + shift).requires_grad_() for _ in range(2))
        got, expected = loss(mine, rest[0], sample_idx=rest[1]), algorithm(theirs, *rest)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)  # the state is float32
        (got,) = torch.autograd.grad(got, mine)
        (expected,) = torch.autograd.grad(expected, theirs)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('lam_pos', [None, 1.1])
def test_it_descends_the_objective(lam_pos):
    """With the batch as the data set, the gradient is that of the objective of the paper."""
    scores, target, ids = batch(0)
    x, y = (scores.clone().requires_grad_() for _ in range(2))
    loss = PartialAUCLoss(SAMPLES, CLASSES, lam=0.4, lam_pos=lam_pos, gamma=1.0)
    (got,) = torch.autograd.grad(loss(x, target, sample_idx=ids), x)
    objective = 0.0
    for s, t in zip(y.t(), target.t()):
        losses = (1 - s[t > 0][:, None] + s[t == 0]).clamp(min=0) ** 2
        inner = 0.4 * (losses / 0.4).exp().mean(1).log()
        if lam_pos is not None:
            inner = lam_pos * (inner / lam_pos).exp().mean().log()
        objective = objective + inner.mean() / CLASSES
    (expected,) = torch.autograd.grad(objective, y)
    torch.testing.assert_close(got, expected)


def test_blocks_of_pairs_add_up(monkeypatch):
    scores, target, ids = batch(2)

    def found(form):
        x = scores.clone().requires_grad_()
        value = PartialAUCLoss(SAMPLES, CLASSES, **FORMS[form])(x, target, sample_idx=ids)
        return value, *torch.autograd.grad(value, x)

    whole = [found(form) for form in FORMS]
    monkeypatch.setattr('mmrank.losses.auc.weighted_sums._CACHED_BLOCK', 30)
    monkeypatch.setattr('mmrank.losses.auc.weighted_sums._KEPT', 0)
    torch.testing.assert_close([found(form) for form in FORMS], whole)
