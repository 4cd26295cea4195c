"""Several labels a sample: what shares one is a positive."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from retrieval_brute_force import brute_force_query, by_dot
from torch.nn.functional import one_hot

from mmrank.errors import UserError
from mmrank.functional import retrieval_curves, retrieval_metrics

# Small integers: products are exact in float32, and ties are frequent.
samples = st.lists(
    st.tuples(
        *[st.sampled_from([-2.0, -1.0, 0.0, 3.0])] * 2, *[st.booleans()] * 3, st.integers(0, 2)
    ),
    min_size=1,
    max_size=12,
)


def tensors(drawn):
    table = torch.tensor(drawn, dtype=torch.float64)
    return table[:, :2].float(), table[:, 2:5].bool(), table[:, 5].long()


def by_definition(scores, positive, left_out):
    """AP, R-Precision, MAP@R, first rank and positives of one query, of three lists."""
    kept = [k for k, out in enumerate(left_out) if not out]
    is_positive = [positive[k] for k in kept]
    places = range(1, len(kept) + 1)
    found = brute_force_query([scores[k] for k in kept], is_positive, places)
    if found is None:
        return [float('nan')] * 3 + [0, 0]
    first = next(k for k in places if found[f'recall@{k}'])
    figures = [found[name] for name in ('mAP', 'R_precision', 'MAP_at_R')]
    return [*figures, first, sum(is_positive)]


@given(samples, samples, st.booleans(), st.booleans())
def test_figures_equal_the_definition(drawn, other, has_gallery, has_ids):
    x, y, ids = tensors(drawn)
    gallery, labels, gallery_ids = tensors(other) if has_gallery else (x, y, ids)
    options = {'memory_limit': 1000}  # one query at a time
    if has_ids:
        options['leave_out'] = (ids, gallery_ids) if has_gallery else ids
    sets = (x, y, gallery, labels) if has_gallery else (x, y)
    got = by_dot(retrieval_metrics, *sets, **options)
    shared = (y[:, None] & labels).any(2)
    if has_ids:
        left_out = shared & (ids[:, None] == gallery_ids)
    else:
        left_out = torch.eye(len(x), dtype=torch.bool) & (not has_gallery)
        left_out = left_out if not has_gallery else torch.zeros_like(shared)
    rows = zip((x @ gallery.T).tolist(), (shared & ~left_out).tolist(), left_out.tolist())
    expected = torch.tensor([by_definition(*row) for row in rows], dtype=torch.float64)
    found = torch.stack([value.double() for value in got], 1)
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=0, atol=1e-12)


def test_one_label_a_sample_is_the_usual_case():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 5, generator=g), torch.randint(6, (40,), generator=g)
    usual, several = (retrieval_curves(x, labels) for labels in (y, one_hot(y, 6)))
    torch.testing.assert_close(several.precision, usual.precision, equal_nan=True)
    for a, b in zip(several.figures, usual.figures):
        torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize(
    ('labels', 'message'),
    [
        (torch.tensor([[0, 7], [1, 2], [1, 3]]), r'must be multi-hot.*got 7.*level_metrics'),
        (torch.tensor([[0.0, 0.3], [1, 0], [0, 1]]), r'must be multi-hot.*got 0\.3'),
        (torch.tensor([[0], [1], [1]]), r'squeeze\(1\)'),
        (torch.ones(2, 4), r'multi-hot, \(3, classes\), got \(2, 4\)'),
    ],
)
def test_other_tables_are_named(labels, message):
    with pytest.raises(UserError, match=message):
        retrieval_metrics(torch.ones(3, 2), labels)


def test_sets_of_other_classes_are_named():
    x = torch.ones(3, 2)
    with pytest.raises(UserError, match=r'labels of .*\(3, 3\) and \(3, 4\).*the same columns'):
        retrieval_metrics(x, torch.eye(3), x.clone(), torch.ones(3, 4))
    with pytest.raises(ValueError, match='go together'):
        retrieval_metrics(x, torch.eye(3), x.clone())
    with pytest.raises(UserError, match='is the very tensor queries'):
        retrieval_metrics(x, torch.eye(3), x, torch.eye(3).flip(0))
