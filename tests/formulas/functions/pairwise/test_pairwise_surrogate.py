import pytest
import torch
from score_lists import one_sided_huber, one_sided_sigmoid, summed_by, surrogate_mean
from subjects import with_gradient
from torch import nn

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum
from mmrank.losses import pairs_smooth
from mmrank.losses.pairs import _interval_sums
from mmrank.losses.pairs_smooth import OneSidedSigmoid, Pairs, Sigmoid, SquaredHinge
from mmrank.losses.retrieval.hierarchical import _SupRankStep

#: Values of the surrogates, by operations that autograd derives.
VALUES = {
    OneSidedHuber: one_sided_huber,
    SquaredHinge: lambda x, tau: (1 - x / tau).clamp(min=0).square(),
    Sigmoid: lambda x, tau: 2 / (1 + torch.exp(x / tau)),
    OneSidedSigmoid: one_sided_sigmoid,
}


def relative_error(found, expected):
    scale = expected.abs().max().clamp(min=1e-30)
    return ((found.double() - expected.double()).abs().max() / scale).item()


def errors_of(pos, neg, tau, method='intervals'):
    """Largest relative errors of value and gradients, to all pairs in float64."""
    up = torch.linspace(0.5, 1.5, pos.numel(), dtype=torch.float64)
    leaves = [x.clone().requires_grad_() for x in (pos, neg)]
    exact = [x.double().requires_grad_() for x in (pos, neg)]
    with summed_by(method):
        found = pairwise_surrogate_sum(leaves[0][None], leaves[1][None], OneSidedHuber(tau))[0]
    expected = one_sided_huber(exact[0][:, None] - exact[1], tau).sum(1)
    slopes = torch.autograd.grad(found, leaves, up.to(found.dtype))
    wanted = torch.autograd.grad(expected, exact, up)
    return [relative_error(*x) for x in zip((found, *slopes), (expected, *wanted))]


def _score_kinds(positives, negatives):
    g = torch.Generator().manual_seed(0)

    def normal(n):
        return torch.randn(n, generator=g, dtype=torch.float64)

    def grid(n):
        return torch.randint(-3, 4, (n,), generator=g).double() / 2

    pos, neg = normal(positives), normal(negatives)
    # Ties of scores and thresholds; and many thresholds in a cell of the grid.
    at = torch.cat([pos, pos - 1, pos + 1e-6])
    close = torch.cat([pos[:10], pos[0] + 1e-6 * normal(positives - 10)])
    return {
        'random': (pos, neg - 1),
        'tied': (grid(positives), grid(negatives)),
        'sorted': (pos.sort().values, neg.sort(descending=True).values),
        'huge': (pos * 1e4, neg * 1e4),
        'tiny range': (1 + 1e-4 * pos, 1 + 1e-4 * neg),
        'far apart': (torch.cat([pos[1:], pos[:1] + 1e4]), neg),
        'at the thresholds': (pos, torch.cat([at, neg])),
        'clustered': (100 * close, torch.cat([100 * at, 100 * neg])),
        'shifted': (pos + 5.5, neg + 5.5),
        'shifted far': (pos + 300, neg + 300),
        'few far from the centre': (torch.cat([pos, pos[:9] + 1e3]), torch.cat([neg, neg + 1e3])),
    }


@pytest.mark.parametrize('kind', list(_score_kinds(20, 2)))
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ('negatives', 'tau'), [(3000, 0.01), (3000, 1.0), (3000, 50.0), (5000, 0.01)]
)
def test_intervals_equal_all_pairs(kind, tau, dtype, negatives):
    """The second size is past the one from which scores are binned by grid."""
    pos, neg = (x.to(dtype) for x in _score_kinds(40, negatives)[kind])
    errors = errors_of(pos, neg, tau)
    # 1e-5 is the requirement; float64 shows that only rounding is left.
    limit = 1e-6
    if dtype == torch.float64:
        limit = 1e-12 if tau == 1 else 1e-9
    assert max(errors) < limit, errors


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_scores_are_summed_exactly(dtype):
    value, *slopes = errors_of(torch.randn(30).to(dtype), torch.randn(5000).to(dtype), 1.0)
    assert value < 1e-12
    # The gradient is rounded to the dtype of the scores, no more.
    assert max(slopes) < 2 * torch.finfo(dtype).eps


def _lists_of_many_lengths(lists, positives, negatives):
    """A few lists with many positives, most with one or none."""
    g = torch.Generator().manual_seed(5)
    pos = torch.randn(lists, positives, generator=g, dtype=torch.float64)
    neg = torch.randn(lists, negatives, generator=g, dtype=torch.float64)
    counts = torch.randint(0, 3, (lists, 1), generator=g)
    counts[::17] = torch.randint(0, positives + 1, counts[::17].shape, generator=g)
    order = torch.rand(lists, positives, generator=g).argsort(1)
    return pos, neg, order < counts, torch.rand(neg.shape, generator=g) < 0.9


@pytest.mark.parametrize('kind', VALUES)
@pytest.mark.parametrize('kept', [True, False])
def test_padding_is_left_out_of_the_pair_matrix(kind, kept, monkeypatch):
    """Positives anywhere in a row, lists without any, NaN at what is out."""
    if not kept:
        monkeypatch.setattr(pairs_smooth, '_KEPT_BYTES', 0)
        monkeypatch.setattr(pairs_smooth, '_PAIRS_PER_BLOCK', 50)
    pos, neg, pos_mask, neg_mask = _lists_of_many_lengths(150, 20, 40)
    groups = pairs_smooth._groups(pos_mask, 40, True)
    assert len(groups) > 2
    work = sum(keep.numel() for _, _, keep in groups)
    assert work <= 2 * pos_mask.sum() < pos_mask.numel() / 4
    surrogate = kind(0.6)
    leaves = [
        torch.where(mask, x, torch.nan).requires_grad_()
        for x, mask in ((pos, pos_mask), (neg, neg_mask))
    ]
    results = []
    for form in ('pairs', 'intervals') if kind is OneSidedHuber else ('pairs',):
        with summed_by(form):
            got = pairwise_surrogate_sum(*leaves, surrogate, pos_mask=pos_mask, neg_mask=neg_mask)
        up = torch.linspace(0.5, 1.5, got.numel(), dtype=got.dtype).view(got.shape)
        results.append([got, *torch.autograd.grad(got, leaves, up)])
    pos.requires_grad_(), neg.requires_grad_()
    counted = pos_mask[..., None] & neg_mask[:, None]
    value = VALUES[kind](pos[..., None] - neg[:, None], 0.6)
    expected = torch.where(counted, value, 0).sum(2)
    wanted = [expected, *torch.autograd.grad(expected, (pos, neg), up)]
    for found in results:
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ('scores', 'positives', 'dtype'),
    [
        (torch.float32, 60, torch.int32),
        (torch.bfloat16, 60, torch.int16),
        (torch.float16, 2**14, torch.int32),
    ],
)
def test_memory_for_backward_is_that_of_the_scores(scores, positives, dtype):
    """Two bytes in half precision, where they hold every interval."""
    torch.manual_seed(0)
    pos = torch.randn(1, positives).to(scores)
    neg = torch.randn(1, 70_000).to(scores)
    mask = torch.ones_like(pos, dtype=torch.bool)
    total, _, (places, *_) = _interval_sums(OneSidedHuber(1.0), Pairs(pos, mask, neg, None, True))
    assert places.dtype == dtype
    assert 0 <= places.min() < places.max() <= 2 * positives
    some = slice(0, positives, positives // 50)
    want = one_sided_huber(pos[0, some].double()[:, None] - neg[0].double(), 1.0).sum(1)
    torch.testing.assert_close(total[0, some], want, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    'surrogate',
    [Sigmoid(0.01), OneSidedSigmoid(0.01), _SupRankStep(0.01)],
    ids=lambda x: type(x).__name__,
)
def test_pairs_of_float32_keep_its_digits(surrogate):
    """Sums to 1e-6 of them, gradients to 1e-6 of the largest."""
    assert surrogate.in_float32
    neg = torch.rand(3, 500, generator=torch.manual_seed(0)) * 2 - 1
    neg[:, :3] = torch.tensor([-torch.inf, torch.inf, torch.nan])
    pos, taken = torch.linspace(-1, 1, 30).repeat(3, 1), ~neg.isnan()

    def run(dtype):
        leaves = [x.to(dtype).requires_grad_() for x in (pos, neg)]
        total = pairwise_surrogate_sum(*leaves, surrogate, neg_mask=taken)
        return [total.detach(), *torch.autograd.grad(total.sum(), leaves)]

    (total, *got), (exact, *want) = run(torch.float32), run(torch.float64)
    torch.testing.assert_close(total, exact, rtol=1e-6, atol=1e-6)
    for a, b in zip(got, want):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-6 * float(b.abs().max()))


def test_a_penalty_on_the_gradient_of_other_terms_is_allowed():
    """Only the gradient of the sum itself has no derivative, not what shares its scores."""
    layer = nn.Linear(2, 1).double()
    inputs = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    scores = layer(inputs)[:, 0]
    loss = surrogate_mean(scores[:2], scores[2:], 1.0).mean()
    (slope,) = torch.autograd.grad(scores.sigmoid().sum(), inputs, create_graph=True)
    (loss + slope.square().sum()).backward()
    assert layer.weight.grad.isfinite().all()


class _ThreeTimes(OneSidedHuber):
    """A subclass with other values than its base."""

    def terms(self, x, values=True, slopes=None):
        value = super().terms(x, values, slopes)
        if slopes is not None:
            slopes.mul_(3)
        return None if value is None else value.mul_(3)


@pytest.mark.parametrize('compiled', [False, True])
def test_a_subclass_is_summed_as_itself(compiled):
    """Also from 2^18 pairs on, and in a compiled graph."""
    g = torch.Generator().manual_seed(0)
    pos, neg = torch.randn(1, 20, generator=g).double(), torch.randn(1, 2**14, generator=g).double()
    function = pairwise_surrogate_sum
    if compiled:
        function = torch.compile(function, backend='aot_eager')
    found = with_gradient(lambda x: function(pos, x, _ThreeTimes(1.0)), neg)
    once = with_gradient(lambda x: pairwise_surrogate_sum(pos, x, OneSidedHuber(1.0)), neg)
    torch.testing.assert_close(found, tuple(3 * x for x in once))


@pytest.mark.parametrize('kind', [OneSidedHuber, Sigmoid, SquaredHinge])
@pytest.mark.parametrize('tau', [0.1, 1.0])
def test_a_surrogate_is_above_the_step_and_below_its_bound(kind, tau):
    surrogate = kind(tau)
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)
    torch.testing.assert_close(surrogate(x), VALUES[kind](x, tau))
    assert (surrogate(x) >= (x <= 0).double() - 1e-12).all()
    largest = surrogate(torch.tensor(-2.0, dtype=torch.float64)).item()
    assert largest == pytest.approx(surrogate.bound(-0.5, 1.5), rel=1e-12)
