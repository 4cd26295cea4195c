"""Retrieval figures against the definitions, of groups, of counts and of shared labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from retrieval_brute_force import brute_force, by_dot, similarity_matrix

from mmrank.functional import retrieval_metrics
from timing import peak_extra_memory

RECALL_AT = (1, 2, 10, 100)


def masks(labels, gallery_labels, ids, same_set):
    """Which entries of the gallery are positives of a query, and which are left out."""
    if labels.dim() == 1:
        shared = labels[:, None] == gallery_labels
    else:
        shared = (labels[:, None] & gallery_labels).any(2)
    left_out = torch.zeros_like(shared)
    if ids is not None:
        own, other = (ids, ids) if same_set else ids
        left_out = shared & (own[:, None] == other)
    elif same_set:
        left_out.fill_diagonal_(True)
    return shared & ~left_out, left_out


def check(queries, labels, gallery=None, gallery_labels=None, similarity='cosine', **options):
    """Compare the figures of each query with the definition, and give their means."""
    sets = queries, labels, gallery, gallery_labels
    got = by_dot(retrieval_metrics, *sets, similarity=similarity, **options)
    same_set = gallery is None
    if same_set:
        gallery, gallery_labels = queries, labels
    positive, left_out = masks(labels, gallery_labels, options.get('leave_out'), same_set)
    scores = similarity_matrix(queries.double().tolist(), gallery.double().tolist(), similarity)
    expected = brute_force(scores, positive, left_out)
    found = torch.stack([x.double() for x in got], 1)
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=0, atol=1e-12)
    known = expected[expected[:, 4] > 0]
    means = dict(zip(('mAP', 'R_precision', 'MAP_at_R'), known[:, :3].mean(0).tolist()))
    for k in RECALL_AT:
        means[f'recall@{k}'] = (known[:, 3] <= k).double().mean().item()
    counts = dict(queries=len(known), queries_without_positive=len(expected) - len(known))
    summary = got.summary(RECALL_AT)
    assert summary == pytest.approx({**means, **counts}, abs=1e-12, nan_ok=True)
    return summary


# Small integers: products are exact in float32, and ties are frequent.
number = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0])
samples = st.lists(
    st.tuples(number, number, *[st.booleans()] * 3, st.integers(0, 3), st.integers(-9, -7)),
    min_size=1,
    max_size=25,
)


def tensors(drawn, several=False):
    """Embeddings, a label or several, and ids."""
    table = torch.tensor(drawn, dtype=torch.float64)
    labels = table[:, 2:5].bool() if several else table[:, 5].long()
    return table[:, :2], labels, table[:, 6].long()


@given(samples, samples, *[st.booleans()] * 4)
def test_sets_equal_the_definition(drawn, other, several, has_gallery, has_ids, one_at_a_time):
    x, labels, ids = tensors(drawn, several)
    sets = x.float(), labels
    if has_gallery:
        gallery, gallery_labels, gallery_ids = tensors(other, several)
        sets = *sets, gallery.float(), gallery_labels
        ids = ids, gallery_ids
    options = dict(leave_out=ids) if has_ids else {}
    if one_at_a_time:
        options['memory_limit'] = 1000
    check(*sets, similarity='dot', **options)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('classes', [1, 3, 40])
def test_many_and_few_positives(dtype, classes):
    """40 classes of 8 compare; 3 and 1 sort."""
    g = torch.Generator().manual_seed(classes)
    labels = torch.randint(classes, (300,), generator=g)
    means = torch.randn(classes, 6, generator=g)
    x = means[labels] + torch.randn(300, 6, generator=g)
    check(x.double(), labels)
    # Products of integers are exact: ties.
    check((2 * x).round().to(dtype), labels, similarity='dot')


@given(samples)
def test_numbers_of_samples_leave_out_the_query_itself(drawn):
    """As without a gallery; also of queries inside a larger gallery."""
    x, labels, _ = tensors(drawn)
    own = torch.arange(len(x))
    part = own[::2]
    alone = by_dot(retrieval_metrics, x, labels)
    whole = by_dot(retrieval_metrics, x, labels, leave_out=own)
    inside = by_dot(retrieval_metrics, x[part], labels[part], x, labels, leave_out=(part, own))
    for a, b, c in zip(alone, whole, inside):
        torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(c, a[part], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize('scale', [1e-30, 1e-3, 1e15])
def test_cosine_of_any_scale_and_dot_of_nearly_equal_scores(scale):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (120,), generator=g)
    x = torch.randn(120, 4, generator=g)
    expected = check(x.double(), labels)
    got = retrieval_metrics((x * scale).double(), labels).summary(RECALL_AT)
    assert got == pytest.approx(expected, abs=1e-12)
    got = retrieval_metrics(x * scale, labels).summary(RECALL_AT)
    assert got == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize('size', [30, 1500])
@pytest.mark.parametrize('classes', [3, 20])
def test_order_of_the_gallery_changes_no_bit(size, classes):
    """Also not with copies of one embedding in different classes."""
    g = torch.Generator().manual_seed(2)
    pool = torch.randn(max(size // 5, 1), 33, generator=g)
    gallery = pool[torch.randint(len(pool), (size,), generator=g)]
    labels = torch.randint(classes, (size,), generator=g)
    queries, query_labels = gallery[:20] + 0.1, labels[:20]
    first = retrieval_metrics(queries, query_labels, gallery, labels)
    for seed in range(4):
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        other = retrieval_metrics(queries, query_labels, gallery[order], labels[order])
        for a, b in zip(first, other):
            assert torch.equal(a, b)


@pytest.mark.parametrize('labels', [[], [3], [1, 2]], ids=['empty', 'one', 'no pair'])
def test_nothing_to_rank(labels):
    labels = torch.tensor(labels, dtype=torch.int64)
    x = torch.ones(len(labels), 2)
    summary = retrieval_metrics(x, labels).summary()
    assert np.isnan(summary['mAP'])
    assert summary['queries_without_positive'] == len(labels)
    assert retrieval_metrics(x, labels, x[:0], labels[:0]).summary()['queries'] == 0


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize('label_dtype', [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_dtypes_and_strides(dtype, label_dtype):
    g = torch.Generator().manual_seed(4)
    x = torch.randint(-3, 4, (5, 50, 2), generator=g).to(dtype)[..., 1].T
    labels = torch.randint(4, (50, 2), generator=g).to(label_dtype)[:, 0]
    check(x, labels, similarity='dot')
    assert not retrieval_metrics(x.requires_grad_(), labels).average_precision.requires_grad


@pytest.mark.slow
@pytest.mark.parametrize('limit', [400_000, 1_000_000])
def test_memory_limit_holds_in_the_worst_case(limit):
    labels = torch.arange(300) % 4
    x = torch.randn(300, 1, generator=torch.Generator().manual_seed(6))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        peak = peak_extra_memory(
            lambda: by_dot(retrieval_metrics, x, labels, memory_limit=limit), tuple
        )
    finally:
        torch.set_num_threads(threads)
    # Beside the limit: copies of both sets, indices, the result, and what is counted at once.
    assert peak < limit + 300 * (2 * 4 + 12 * 8) + 24 * 300 * 300


def test_a_row_of_zeros_has_cosine_zero():
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    got = retrieval_metrics(x, torch.tensor([0, 0, 1, 2]))
    # 0 stands between the cosines of the first query, 0.71 and -1, and ties with nothing but
    # itself: all three tie for the query of zeros.
    assert got.first_rank.tolist() == [2, 3, 0, 0]
