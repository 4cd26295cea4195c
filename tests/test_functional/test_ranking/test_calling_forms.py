"""One calling form for every ranking function: one list, lists, scores."""

import doctest
import importlib
import inspect

import pytest
import torch

from mmrank import functional
from mmrank.docstrings import arguments, inherit_arguments
from mmrank.functional import ranking_function, score_lists

#: Ranking functions by the name of their form for score matrices.
FUNCTIONS = {
    'alrp_loss_lists': functional.error_driven_alrp,
    'ap_loss_lists': functional.error_driven_ap,
    'auc_lists': functional.auc_loss,
    'blackbox_ap_lists': functional.blackbox_ap_loss,
    'dr_loss_lists': functional.distributional_ranking,
    'listwise_ap_loss': functional.listwise_ap_loss,
    'rank_sort_loss_lists': functional.error_driven_rank_sort,
    'smooth_ap_lists': functional.smooth_ap_loss,
    'soap_lists': functional.soap_loss,
    'soprc_lists': functional.soprc_loss,
    'stable_ap_lists': functional.stable_ap_loss,
}
SETTINGS = {
    'soprc_lists': dict(prior=0.2, tau1=0.3, tau2=0.1),
    'stable_ap_lists': dict(tau=0.5, bound=9.0),
}
MASKS = ('pos_mask', 'neg_mask', 'group')


@pytest.fixture(params=FUNCTIONS)
def forms(request):
    """Ranking function, its form for scores, and its settings."""
    name = request.param
    settings = SETTINGS.get(name, {})
    return FUNCTIONS[name], getattr(functional, name), settings


def make_lists(dtype=torch.float64):
    """Scores in (0, 1), positives, mask, and one value for each entry."""
    g = torch.Generator().manual_seed(0)
    scores = torch.rand(4, 20, generator=g, dtype=torch.float64).to(dtype)
    positive = torch.rand(4, 20, generator=g) < 0.3
    positive[2] = False
    mask = torch.rand(4, 20, generator=g) < 0.8
    return scores, positive, mask, torch.rand(4, 20, generator=g).to(dtype)


def extra_of(function, values):
    """What a function takes beside scores: for all lists, for list i."""
    for name in [*inspect.signature(function).parameters][2:3]:
        if name in ('quality', 'box_errors'):
            return [values], lambda i, row: [values[i][row]]
        if name == 'v':
            return [values[:, :7]], lambda i, row: [values[i, :7]]
        if name == 'mean_pos':
            return [values[:, 0]], lambda i, row: [values[i, 0]]
    return [], lambda i, row: []


def parts(values):
    return values if isinstance(values, tuple) else (values,)


def test_every_form_for_scores_is_listed():
    found = {x for x in functional.__all__ if x.endswith('_lists')}
    assert found - {'score_lists'} == {*FUNCTIONS}


def test_the_forms_agree(forms):
    function, of_scores, settings = forms
    scores, positive, mask, values = make_lists()
    extra, extra_of_list = extra_of(function, values)
    many = of_scores(scores, positive, *extra, mask=mask, **settings)
    for i, (row, p, m) in enumerate(zip(scores, positive, mask)):
        p, n = p & m, ~p & m
        one = function(row[p], row[n], *extra_of_list(i, p), **settings)
        # All scores, of which a mask marks the negatives.
        masked = function(row[p], row, *extra_of_list(i, p), neg_mask=n, **settings)
        padded = function(
            row[p][None], row[n][None], *(x[None] for x in extra_of_list(i, p)), **settings
        )
        for a, b, c, d in zip(*map(parts, (many, one, masked, padded))):
            assert b.shape == ()
            assert d.shape == (1,)
            for other in (b, c, d[0]):
                torch.testing.assert_close(other, a[i])


def test_dtypes(forms):
    function, of_scores, settings = forms
    for dtype, expected in (
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        scores, positive, _, values = make_lists(dtype)
        extra, extra_of_list = extra_of(function, values)
        many = of_scores(scores, positive, *extra, **settings)
        p = positive[0]
        pos, neg = scores[0][p], scores[0][~p]
        one = function(pos, neg, *extra_of_list(0, p), **settings)
        own = [x[None] for x in extra_of_list(0, p)]
        padded = function(pos[None], neg[None], *own, **settings)
        assert {x.dtype for x in parts(many) + parts(one)} == {expected}
        assert {x.dtype for x in parts(padded)} == {torch.float64}


def test_signatures_and_docstrings(forms):
    function, of_scores, _ = forms
    taken = inspect.signature(function).parameters
    names = [*taken][2:]
    assert [*taken][:2] == ['pos', 'neg']
    assert {*MASKS} <= {*names}
    own = [name for name in names if name not in MASKS]
    given = inspect.signature(of_scores).parameters
    assert [*given] == ['scores', 'is_positive', *own, 'mask']
    for name in own:
        assert given[name] == taken[name]
    assert given['mask'].default is None
    assert [*arguments(of_scores.__doc__)] == [*given]
    assert [*arguments(function.__doc__)] == [*taken]
    assert getattr(functional, of_scores.__name__) is of_scores
    assert of_scores.__module__ == function.__module__


def test_wrong_input(forms):
    function, of_scores, settings = forms
    zeros, labels = torch.zeros(2, 3), torch.ones(2, 3)
    extra, _ = extra_of(function, torch.zeros(2, 9))
    with pytest.raises(ValueError, match='must be 1-D, or'):
        function(zeros, zeros[0], *extra, **settings)
    with pytest.raises(ValueError, match='as many lists'):
        function(zeros, zeros[:1], *extra, **settings)
    with pytest.raises(TypeError, match=r'call neg\.float'):
        function(zeros, zeros.long(), *extra, **settings)
    with pytest.raises(ValueError, match='of one shape'):
        of_scores(zeros, labels[:1], *extra, **settings)
    with pytest.raises(ValueError, match='mask must have shape'):
        of_scores(zeros, labels, *extra, mask=labels[:1], **settings)


def test_wrong_masks_extras_and_names():
    zeros = torch.zeros(2, 3)
    with pytest.raises(ValueError, match='pos_mask must have shape'):
        functional.smooth_ap_loss(zeros, zeros, pos_mask=zeros[0].bool())
    with pytest.raises(ValueError, match='neg_mask must have shape'):
        functional.smooth_ap_loss(zeros, zeros, neg_mask=zeros[:1].bool())
    for given in ([zeros[0]], [zeros[:, :2]]):
        with pytest.raises(ValueError, match='quality must have shape'):
            functional.error_driven_rank_sort(zeros, zeros, *given)
    with pytest.raises(ValueError, match='quality must have shape'):
        functional.rank_sort_loss_lists(zeros, zeros, quality=zeros[0])
    with pytest.raises(TypeError, match='mean_pos'):
        functional.stable_ap_loss(zeros, zeros, tau=1.0, bound=3.0)
    with pytest.raises(TypeError, match='tua'):
        functional.smooth_ap_loss(zeros, zeros, tua=1.0)
    with pytest.raises(TypeError):
        functional.smooth_ap_loss(zeros, zeros, 0.1)


def test_extras_by_name():
    pos, neg = torch.tensor([0.9, 0.2]), torch.tensor([0.5, -0.5])
    setting = dict(tau=0.5, bound=9.0)
    by_place = functional.stable_ap_loss(pos, neg, 0.1, **setting)
    by_name = functional.stable_ap_loss(pos, neg, mean_pos=0.1, **setting)
    assert torch.equal(by_place, by_name)
    quality = torch.tensor([0.3, 0.8])
    parts = functional.error_driven_rank_sort(pos, neg, quality=quality)
    expected = functional.error_driven_rank_sort(pos, neg, quality)
    assert torch.equal(torch.stack(parts), torch.stack(expected))


def test_a_function_of_a_user_under_a_name():
    @ranking_function
    def worst(pos, neg, *, pos_mask=None, neg_mask=None, group=None):
        return (pos_mask * (neg.amax(1, keepdim=True) - pos)).amax(1)

    of_scores = score_lists(worst, 'worst_of_scores')
    assert of_scores.__name__ == 'worst_of_scores'
    assert of_scores.__doc__ is None
    assert score_lists(worst).__name__ == 'worst_lists'
    got = of_scores(torch.tensor([[1.0, 3.0]]), torch.tensor([[1, 0]]))
    assert got.tolist() == [2.0]


def test_a_class_inherits_descriptions():
    class Base:
        """Base.

        Args:
            a: First,
                on two lines.
            b: Second.
        """

    class Child(Base):
        """Child.

        Args:
            c: Third.
            b: Other second.

        Raises:
            ValueError: Always.
        """

        def __init__(self, b, a, *, c, d=0):
            pass

    inherit_arguments(Child)
    assert [*arguments(Child.__doc__)] == ['b', 'a', 'c']
    assert 'Other second' in Child.__doc__
    assert 'on two lines' in Child.__doc__
    assert Child.__doc__.endswith('Raises:\n    ValueError: Always.')


def test_docstring_examples():
    module = importlib.import_module('mmrank.losses.ranking.base')
    results = doctest.testmod(module, extraglobs={'torch': torch})
    assert results.attempted
    assert not results.failed
