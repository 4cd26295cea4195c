"""What every ranking function does with scores of any kind, in one calling form.

What a function shares with its class, such as permutations, strides, dtypes of labels and infinite
scores, is tested once, of the class: test_registered_losses.py.
"""

import doctest
import importlib
import math
from functools import partial

import pytest
import torch
from score_lists import soap_losses, summed_by

from mmrank import functional as F
from mmrank import tensors
from mmrank.functional import split_lists
from mmrank.losses import RankedLists


def targets(scores, is_positive, values=None):
    """Targets as AP-Loss takes them: > 0 positive, 0 negative."""
    return is_positive.double() * (1 if values is None else (0.1 + values) / 1.1)


def levels(is_positive, values):
    """Levels 1 and 2 of the positives."""
    return is_positive.long() * (1 + (values.reshape(is_positive.shape) > 0.5).long())


def stable_ap(scores, is_positive, mask, values, method='auto'):
    """With the sums over pairs in one of their ways."""
    with summed_by(method):
        return F.stable_ap_loss(
            scores, is_positive, values[..., 0], tau=0.5, bound=9.0, rho=1.0, mask=mask
        )


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
    'soap': lambda s, p, m, v: soap_losses(s, p, m),
    'soprc': lambda s, p, m, v: F.soprc_loss(
        s, p, v[..., :7], prior=0.1 + 0.5 * v[..., 0], tau1=0.3, tau2=0.1, mask=m
    ),
    'stable_ap': stable_ap,
    'stable_ap by intervals': partial(stable_ap, method='intervals'),
    'stable_ap by pairs': partial(stable_ap, method='pairs'),
}
#: Also without a positive they have a loss; probabilities saturate; bins have fixed places.
WITHOUT_POSITIVES = {'dr'}
FIXED_PLACES = {'dr', 'listwise_ap'}
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


@pytest.fixture(params=FUNCTIONS)
def name(request):
    return request.param


@pytest.fixture
def loss(name):
    return FUNCTIONS[name]


def with_gradient(loss, scores, *args):
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, *args)
    value.sum().backward()
    return value.detach(), leaf.grad


def test_lists_equal_one_by_one(loss, name):
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


def test_gradient_pulls_positives_up_and_pushes_negatives_down(loss, name):
    scores, positive, mask, values = make_lists()
    _, grad = with_gradient(loss, scores, positive, mask, values)
    assert grad.abs().sum() > 0
    if name != 'dr':  # negatives below their soft maximum rise
        assert (grad[~positive] >= 0).all()
    assert grad[positive].sum() < 0
    # Only differences of scores count.
    if name not in {*FIXED_PLACES, 'soprc'}:
        assert grad.sum(1).abs().max() < 1e-9


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_half_precision_is_counted_in_float64(loss, name, dtype):
    scores, positive, mask, values = make_lists(dtype=dtype)
    value, grad = with_gradient(loss, scores, positive, mask, values)
    exact, exact_grad = with_gradient(loss, scores.double(), positive, mask, values)
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert grad.dtype == dtype
    torch.testing.assert_close(value, exact.to(value.dtype))
    # The parts of some losses are rounded before they are added.
    error = (grad.double() - exact_grad).abs().max() / exact_grad.abs().max()
    assert error < (1e-6 if name == 'dr' else 0) + 3 * torch.finfo(dtype).eps


def test_empty_and_one_sided_lists(loss, name):
    for pos, neg in ((0, 0), (0, 3), (3, 0), (1, 0)):
        leaf = torch.rand(pos + neg, requires_grad=True)
        values = torch.ones(9 if name in OF_LISTS else pos + neg)
        value = loss(leaf, torch.arange(pos + neg) < pos, None, values)
        value.backward()
        assert value.isfinite()
        assert leaf.grad.isfinite().all()
        least = {'alrp', 'rank_sort', 'recall_at_k', *OF_LISTS} - {'soprc'} if pos else set()
        if name not in WITHOUT_POSITIVES | least:
            assert value == 0
            assert (leaf.grad == 0).all()
    nothing = torch.zeros(0, 9, requires_grad=True)
    value = loss(nothing, torch.zeros(0, 9), None, torch.zeros(0, 9))
    assert value.shape == (0,)
    value.sum().backward()


def test_nan_is_not_hidden(loss):
    scores = torch.tensor([[0.0, float('nan'), 1.0], [0.3, 0.2, 0.1]])
    for positive in ([1, 1, 0], [1, 0, 0]):
        value = loss(scores, torch.tensor([positive] * 2), None, torch.ones(2, 3))
        assert value.isnan().tolist() == [True, False]


def test_wrong_input(loss):
    zeros = torch.zeros(2, 3)
    with pytest.raises(ValueError, match='shape'):
        loss(zeros, torch.zeros(2, 4), None, torch.zeros(2, 4))
    with pytest.raises(TypeError, match='float dtype'):
        loss(zeros.int(), zeros, None, zeros)
    with pytest.raises(ValueError, match=r'\(scores,\) or \(lists, scores\)'):
        loss(zeros[None], zeros[None], None, zeros[None])


def test_positives_and_negatives_are_not_scores_and_labels():
    pos, neg = torch.rand(3), torch.rand(5)
    with pytest.raises(ValueError, match='Fix: pass all scores of a list together'):
        F.smooth_ap_loss(pos, neg)
    with pytest.raises(ValueError, match='is_positive is NaN'):
        F.smooth_ap_loss(pos, torch.full((3,), float('nan')))
    with pytest.raises(ValueError, match='mask must have shape'):
        F.smooth_ap_loss(pos, pos, mask=neg.bool())
    with pytest.raises(ValueError, match='values must have shape'):
        split_lists(pos, pos, values=neg)
    with pytest.raises(TypeError, match='tua'):
        F.smooth_ap_loss(pos, pos, tua=1.0)


#: Functions and arguments that they refuse by name.
WRONG_SETTINGS = [
    ('ap_loss', dict(delta=0), 'delta must be > 0'),
    ('ap_loss', dict(delta=-1.0), 'delta must be > 0'),
    ('ap_loss', dict(delta=math.nan), 'delta must be > 0'),
    ('auc_loss', dict(surrogate='logistic'), "surrogate='logistic' is unknown"),
    ('auc_loss', dict(tau=0.0), 'tau must be'),
    ('blackbox_ap_loss', dict(lam=0.0), 'lam must be'),
    ('blackbox_ap_loss', dict(lam=-1.0), 'lam must be'),
    ('blackbox_ap_loss', dict(lam=math.nan), 'lam must be'),
    ('blackbox_ap_loss', dict(lam=math.inf), 'lam must be'),
    ('blackbox_ap_loss', dict(margin=-0.1), 'margin must be'),
    ('listwise_ap_loss', dict(num_bins=1), 'num_bins must be at least 2'),
    ('listwise_ap_loss', dict(score_range=(1.0, -1.0)), 'score_range must be finite'),
    ('listwise_ap_loss', dict(score_range=(0.0, math.inf)), 'score_range must be finite'),
    ('listwise_ap_loss', dict(score_range=(math.nan, 1.0)), 'score_range must be finite'),
    ('smooth_ap_loss', dict(tau=0.0), 'tau must be'),
    ('smooth_ap_loss', dict(tau=-1.0), 'tau must be'),
    ('smooth_ap_loss', dict(tau=math.nan), 'tau must be'),
]


@pytest.mark.parametrize(('function', 'settings', 'message'), WRONG_SETTINGS)
def test_wrong_settings(function, settings, message):
    with pytest.raises(ValueError, match=message):
        getattr(F, function)(torch.zeros(2), torch.tensor([1, 0]), **settings)


@pytest.mark.parametrize(
    'module',
    [
        *('auc.auc', 'pairs_smooth', 'ranking.alrp', 'ranking.ap_loss'),
        *('ranking.blackbox_ap', 'ranking.dr_loss', 'ranking.listwise_ap', 'ranking.rank_sort'),
        *('ranking.smooth_ap', 'ranking.soprc', 'ranking.stable_ap'),
        *('retrieval.recall_at_k', 'retrieval.hierarchical'),
        *('mmrank.functional.metrics.average_precision', 'mmrank.state.score_vector'),
    ],
)
def test_docstring_examples(module):
    name = module if module.startswith('mmrank') else f'mmrank.losses.{module}'
    module = importlib.import_module(name)
    names = {k: getattr(F, k) for k in F.__all__}
    results = doctest.testmod(module, extraglobs={'torch': torch, **names})
    assert results.attempted
    assert not results.failed


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_on_a_gpu(loss, dtype):
    lists = make_lists(40, 500, dtype)
    value, grad = with_gradient(loss, *lists)
    got, got_grad = with_gradient(loss, *(x.cuda() for x in lists))
    torch.testing.assert_close(got.cpu(), value)
    torch.testing.assert_close(got_grad.cpu(), grad)


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


@pytest.mark.parametrize('lists', [1, 3])
def test_counts_of_negatives(lists):
    mask = torch.rand(lists, 41, generator=torch.Generator().manual_seed(1)) < 0.3
    for taken in (mask, mask[:, :0], mask.expand(lists, 41).repeat(1, 30_000)):
        number = RankedLists(None, None, None, None, taken).num_negatives()
        assert number.tolist() == taken.sum(1).tolist()
        assert number.dtype == torch.float64
