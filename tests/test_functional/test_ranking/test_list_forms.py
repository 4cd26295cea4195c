"""What every rival loss does with lists of any kind."""

import doctest
import importlib

import pytest
import torch

from mmrank.functional import (
    auc_lists,
    auc_loss,
    blackbox_ap_lists,
    blackbox_ap_loss,
    listwise_ap_loss,
    smooth_ap_lists,
    smooth_ap_loss,
)

LOSSES = {
    'smooth_ap': (smooth_ap_loss, smooth_ap_lists, dict(tau=0.1)),
    'listwise_ap': (listwise_ap_loss, listwise_ap_loss, dict(num_bins=9)),
    'blackbox_ap': (blackbox_ap_loss, blackbox_ap_lists, dict(lam=3.0)),
    'auc_sigmoid': (auc_loss, auc_lists, dict(tau=0.2)),
    'auc_huber': (auc_loss, auc_lists, dict(surrogate='one_sided_huber')),
}


def make_lists(lists=5, length=24, dtype=torch.float64, seed=0):
    """Cosine-like scores, 2 to 6 positives a list, some entries left out."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.rand(lists, length, generator=g, dtype=torch.float64)
    positive = torch.rand(lists, length, generator=g) < 0.2
    positive[:, :2] = True
    mask = torch.rand(lists, length, generator=g) < 0.9
    mask[:, :2] = True
    return (2 * scores - 1).to(dtype), positive, mask


@pytest.fixture(params=LOSSES)
def forms(request):
    """(loss of one list, loss of lists), settings bound."""
    one, many, settings = LOSSES[request.param]

    def of_one(pos, neg):
        return one(pos, neg, **settings)

    def of_lists(scores, positive, mask=None):
        return many(scores, positive, mask=mask, **settings)

    return of_one, of_lists


def with_gradient(of_lists, scores, *args):
    leaf = scores.clone().requires_grad_()
    loss = of_lists(leaf, *args)
    loss.sum().backward()
    return loss.detach(), leaf.grad


def test_lists_equal_one_by_one(forms):
    one, of_lists = forms
    scores, positive, mask = make_lists()
    positive[3] = False
    got = of_lists(scores, positive, mask)
    alone = [one(row[p & m], row[~p & m]) for row, p, m in zip(scores, positive, mask)]
    torch.testing.assert_close(got, torch.stack(alone))
    assert got[3] == 0
    assert (got[:3] > 0).all()


def test_left_out_entries_get_no_gradient(forms):
    _, of_lists = forms
    scores, positive, mask = make_lists()
    leaf = torch.where(mask, scores, float('nan')).requires_grad_()
    loss = of_lists(leaf, positive, mask)
    loss.sum().backward()
    value, grad = with_gradient(of_lists, scores, positive, mask)
    torch.testing.assert_close(loss.detach(), value)
    torch.testing.assert_close(leaf.grad, grad)
    assert (grad[~mask] == 0).all()


def test_gradient_pulls_positives_up_and_pushes_negatives_down(forms):
    _, of_lists = forms
    scores, positive, mask = make_lists()
    _, grad = with_gradient(of_lists, scores, positive, mask)
    assert grad.abs().sum() > 0
    assert (grad[~positive] >= 0).all()
    assert grad[positive].sum() < 0
    # Only differences of scores count, but for the bins' fixed places.
    if of_lists.__closure__[0].cell_contents is not listwise_ap_loss:
        assert grad.sum(1).abs().max() < 1e-9


def test_order_does_not_matter(forms):
    _, of_lists = forms
    scores, positive, mask = make_lists()
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    value, grad = with_gradient(of_lists, scores, positive, mask)
    moved, moved_grad = with_gradient(
        of_lists, scores[:, order], positive[:, order], mask[:, order]
    )
    torch.testing.assert_close(moved, value)
    torch.testing.assert_close(moved_grad, grad[:, order])


def test_strides_do_not_matter(forms):
    _, of_lists = forms
    scores, positive, mask = make_lists()
    value = of_lists(scores, positive, mask)
    for strided in (scores.t().contiguous().t(), scores.repeat_interleave(2, dim=1)[:, ::2]):
        assert not strided.is_contiguous()
        torch.testing.assert_close(of_lists(strided, positive, mask), value)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_is_counted_in_float64(forms, dtype):
    _, of_lists = forms
    scores, positive, mask = make_lists(dtype=dtype)
    value, grad = with_gradient(of_lists, scores, positive, mask)
    exact, exact_grad = with_gradient(of_lists, scores.double(), positive, mask)
    assert value.dtype == torch.float32
    assert grad.dtype == dtype
    torch.testing.assert_close(value.double(), exact)
    torch.testing.assert_close(grad, exact_grad.to(dtype))


def test_integer_labels(forms):
    _, of_lists = forms
    scores, positive, mask = make_lists()
    value = of_lists(scores, positive, mask)
    for labels in (positive.int(), positive.long(), positive.to(torch.uint8)):
        torch.testing.assert_close(of_lists(scores, labels, mask), value)


def test_empty_and_one_sided_lists(forms):
    one, of_lists = forms
    for pos, neg in ((0, 0), (0, 3), (3, 0), (1, 0)):
        leaves = [torch.rand(n, requires_grad=True) for n in (pos, neg)]
        loss = one(*leaves)
        loss.backward()
        assert loss == 0
        assert all((x.grad == 0).all() for x in leaves)
    nothing = torch.zeros(0, 4, requires_grad=True)
    loss = of_lists(nothing, torch.zeros(0, 4))
    assert loss.shape == (0,)
    loss.sum().backward()
    assert of_lists(torch.zeros(2, 0), torch.zeros(2, 0)).tolist() == [0, 0]


def test_infinite_scores_stay_finite(forms):
    inf = float('inf')
    _, of_lists = forms
    leaf = torch.tensor([[inf, 0.0, -inf, inf, -inf]], requires_grad=True)
    loss = of_lists(leaf, torch.tensor([[1, 1, 1, 0, 0]]))
    loss.sum().backward()
    assert loss.isfinite().all()
    assert leaf.grad.isfinite().all()


def test_nan_is_not_hidden(forms):
    _, of_lists = forms
    scores = torch.tensor([[0.0, float('nan'), 1.0], [0.3, 0.2, 0.1]])
    for positive in ([1, 1, 0], [1, 0, 0]):
        loss = of_lists(scores, torch.tensor([positive] * 2))
        assert loss.isnan().tolist() == [True, False]


def test_wrong_input(forms):
    one, of_lists = forms
    zeros = torch.zeros(2, 3)
    with pytest.raises(ValueError, match='of one shape'):
        of_lists(zeros, torch.zeros(2, 4))
    with pytest.raises(ValueError, match='mask must have shape'):
        of_lists(zeros, zeros, torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(TypeError, match='float dtype'):
        of_lists(zeros.int(), zeros)
    with pytest.raises(ValueError, match='must be 1-D'):
        one(zeros, zeros[0])


@pytest.mark.parametrize('module', ['smooth_ap', 'listwise_ap', 'blackbox_ap', 'auc'])
def test_docstring_examples(module):
    module = importlib.import_module(f'mmrank.functional.ranking.{module}')
    results = doctest.testmod(module, extraglobs={'torch': torch})
    assert results.attempted
    assert not results.failed


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_on_a_gpu(forms, dtype):
    _, of_lists = forms
    scores, positive, mask = make_lists(40, 500, dtype)
    value, grad = with_gradient(of_lists, scores, positive, mask)
    moved = (x.cuda() for x in (scores, positive, mask))
    got, got_grad = with_gradient(of_lists, *moved)
    torch.testing.assert_close(got.cpu(), value)
    torch.testing.assert_close(got_grad.cpu(), grad)
