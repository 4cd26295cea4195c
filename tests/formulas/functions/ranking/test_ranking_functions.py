"""What every ranking function does with scores of any kind, in one calling form.

What a function shares with its class, such as permutations, strides, dtypes of labels and infinite
scores, is tested once, of the class: test_registered_losses.py.
"""

import doctest
import importlib
from functools import partial

import pytest
import torch
from score_lists import summed_by
from subjects import with_gradient

from mmrank import functional as F
from mmrank import tensors
from mmrank.losses import pairs_graded


def targets(scores, is_positive, values=None):
    """Targets as AP-Loss takes them: > 0 positive, 0 negative."""
    return is_positive.double() * (1 if values is None else (0.1 + values) / 1.1)


def levels(is_positive, values):
    """Levels 1 and 2 of the positives."""
    return is_positive.long() * (1 + (values.reshape(is_positive.shape) > 0.5).long())


def stable_ap(scores, is_positive, mask, values, method='auto', relevance=None):
    """With the sums over pairs in one of their ways."""
    settings = dict(tau=0.5, bound=9.0, rho=1.0, mask=mask, relevance=relevance)
    with summed_by(method):
        return F.stable_ap_loss(scores, is_positive, values[..., 0], **settings)


#: ``f(scores, is_positive, mask, values)``; the values are what some losses take beside scores.
FUNCTIONS = {
    'alrp': lambda s, p, m, v: sum(F.alrp_loss(s, targets(s, p), v, mask=m)),
    'ap': lambda s, p, m, v: F.ap_loss(s, targets(s, p), mask=m),
    'auc_huber': lambda s, p, m, v: F.auc_loss(s, p, mask=m, surrogate='one_sided_huber'),
    'auc_sigmoid': lambda s, p, m, v: F.auc_loss(s, p, mask=m, tau=0.2),
    'blackbox_ap': lambda s, p, m, v: F.blackbox_ap_loss(s, p, mask=m, lam=3.0),
    'dr': lambda s, p, m, v: F.dr_loss(s, targets(s, p), mask=m),
    'hap': lambda s, p, m, v: F.hap_loss(s, levels(p, v), mask=m, tau=0.1),
    'listwise_ap': lambda s, p, m, v: F.listwise_ap_loss(s, p, mask=m, num_bins=9),
    'ndcg': lambda s, p, m, v: F.ndcg_loss(s, levels(p, v), mask=m, tau=0.1),
    'rank_sort': lambda s, p, m, v: sum(F.rank_sort_loss(s, targets(s, p, v), mask=m)),
    'recall_at_k': lambda s, p, m, v: F.recall_at_k_loss(s, p, mask=m, ks=(1, 4), tau=0.1),
    'smooth_ap': lambda s, p, m, v: F.smooth_ap_loss(s, p, mask=m, tau=0.1),
    'soprc': lambda s, p, m, v: F.soprc_loss(
        s, p, v[..., :7], prior=0.1 + 0.5 * v[..., 0], tau1=0.3, tau2=0.1, mask=m
    ),
    'graded ap': lambda s, p, m, v: F.ap_loss(
        s, targets(s, p), mask=m, relevance=v, interpolate=False
    ),
    'graded smooth_ap': lambda s, p, m, v: F.smooth_ap_loss(s, p, mask=m, tau=0.1, relevance=v),
    'stable_ap': stable_ap,
    'stable_ap, graded': lambda s, p, m, v: stable_ap(s, p, m, v, relevance=v),
    'stable_ap by intervals': partial(stable_ap, method='intervals'),
    'stable_ap by pairs': partial(stable_ap, method='pairs'),
}
#: Also without a positive they have a loss.
WITHOUT_POSITIVES = {'dr'}
#: Their values belong to a list, not to its scores.
OF_LISTS = {'soprc', *(name for name in FUNCTIONS if name.startswith('stable_ap'))}


def make_lists(lists=5, length=24, dtype=torch.float64):
    """Cosine-like scores, 2 to 6 positives a list, some entries left out."""
    g = torch.Generator().manual_seed(0)
    scores = torch.rand(lists, length, generator=g, dtype=torch.float64)
    positive = torch.rand(lists, length, generator=g) < 0.2
    positive[:, :2] = True
    mask = torch.rand(lists, length, generator=g) < 0.9
    mask[:, :2] = True
    values = torch.rand(lists, length, generator=g, dtype=torch.float64)
    return (2 * scores - 1).to(dtype), positive, mask, values


@pytest.mark.parametrize('name', FUNCTIONS)
def test_lists_equal_one_by_one(name):
    loss = FUNCTIONS[name]
    scores, positive, mask, values = make_lists()
    positive[3] = False
    positive[4] = True
    got, grad = with_gradient(loss, scores, positive, mask, values)
    for i, lists in enumerate(zip(scores, positive, mask, values)):
        one, one_grad = with_gradient(loss, *lists)
        assert one.shape == ()
        torch.testing.assert_close(got[i], one)
        torch.testing.assert_close(grad[i], one_grad)
        # Entries that are left out may as well be absent.
        if name not in OF_LISTS:
            s, p, m, v = lists
            torch.testing.assert_close(loss(s[m], p[m], None, v[m]), one)
    assert (got[3] == 0) == (name not in WITHOUT_POSITIVES)
    assert (got[:3] > 0).all()


@pytest.mark.parametrize(
    'module',
    [
        *('auc.auc', 'pairs', 'ranking.alrp', 'ranking.ap_loss'),
        *('ranking.blackbox_ap', 'ranking.dr_loss', 'ranking.listwise_ap', 'ranking.rank_sort'),
        *('ranking.smooth_ap', 'ranking.soprc', 'ranking.stable_ap'),
        *('retrieval.recall_at_k', 'retrieval.hierarchical'),
        *('mmrank.metrics.average_precision', 'mmrank.state.score_vector'),
    ],
)
def test_docstring_examples(module):
    name = module if module.startswith('mmrank') else f'mmrank.losses.{module}'
    module = importlib.import_module(name)
    names = {k: getattr(F, k) for k in F.__all__}
    results = doctest.testmod(module, extraglobs={'torch': torch, **names})
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize('name', [x for x in FUNCTIONS if 'graded' in x or x == 'rank_sort'])
def test_blocks_of_pairs_change_nothing(name, monkeypatch):
    lists = make_lists()
    whole = with_gradient(FUNCTIONS[name], *lists)
    monkeypatch.setattr(pairs_graded, '_CACHED_PAIRS', 7)
    torch.testing.assert_close(with_gradient(FUNCTIONS[name], *lists), whole)


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
@pytest.mark.parametrize('size', [1, 30, 57])
@pytest.mark.parametrize('name', ['blackbox_ap', 'dr', 'listwise_ap'])
def test_blocks_of_scores_change_nothing(name, size, dtype, monkeypatch):
    scores, positive, mask, values = make_lists(3, 41, dtype)
    positive[2] = False
    whole = with_gradient(FUNCTIONS[name], scores, positive, mask, values)
    assert whole[1][~positive].any()
    # One column, ten and nineteen in a block; the last is not full.
    monkeypatch.setattr(tensors, 'SCORES_PER_BLOCK', size)
    assert tensors.block_width(3) == max(size // 3, 1)
    parts = with_gradient(FUNCTIONS[name], scores, positive, mask, values)
    torch.testing.assert_close(parts, whole)
